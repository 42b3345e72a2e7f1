// SPDX-License-Identifier: Apache-2.0
#include "lab/daemon_fixture.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/ip_address.h"
#include "wire/packet.h"

namespace mlnet::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kPollMs = 5;
constexpr const char* kSwitch = "sw";

void MustRun(const std::string& command) {
  const Ran ran = Shell(command);
  ASSERT_EQ(ran.exit_code, 0) << command << "\n" << ran.output;
}

Fd LoadPass() {
  const bpf_insn code[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = XDP_PASS},
                           {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}};
  return Fd(bpf_prog_load(BPF_PROG_TYPE_XDP, "test_pass", "GPL", code, 2, nullptr));
}

Fd AttachPassHere(const std::string& name) {
  const Fd program = LoadPass();
  return Fd(bpf_link_create(program.get(), static_cast<int>(::if_nametoindex(name.c_str())), BPF_XDP, nullptr));
}

// Of a rank whose job has tags; null where it has none.
std::unique_ptr<wire::Signer> SignerOf(const Json& join, const Json& tree) {
  const auto job_key = wire::KeyFromHex(join.value("key", ""));
  if (!job_key) return nullptr;
  const auto key = std::make_shared<const mlnet_key>(wire::DeriveKey(*job_key, join["job_id"], join["epoch"]));
  const auto address = [&](const char* name) { return IpAddress::Parse(tree[name].get<std::string>()).value().mapped(); };
  return std::make_unique<wire::Signer>(key, address("address"), address("aggregator"));
}

}  // namespace

bool WaitUntil(const std::function<bool()>& condition, milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  while (!condition()) {
    if (steady_clock::now() >= deadline) return false;
    ::poll(nullptr, 0, kPollMs);
  }
  return true;
}

Ran Shell(const std::string& command) {
  Ran ran;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  char line[4096];
  while (std::fgets(line, sizeof(line), pipe) != nullptr) ran.output += line;
  const int status = ::pclose(pipe);
  ran.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

const mlnet_cell* Joined::MapInbox() {
  const size_t bytes = reply.result["cells"].get<size_t>() * sizeof(mlnet_cell);
  void* cells = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, reply.fds[0].get(), 0);
  return cells == MAP_FAILED ? nullptr : static_cast<const mlnet_cell*>(cells);
}

Json Joined::WaitPush(const std::string& event) {
  for (;;) {
    auto push = client->NextPush(std::chrono::seconds(10));
    if (!push || !*push) return nullptr;
    if ((**push)["event"] == event) return **push;
  }
}

DaemonLab::DaemonLab(std::vector<std::string> hosts)
    : prefix_(fmt::format("mldt{}-", ::getpid())), hosts_(std::move(hosts)) {
  MustRun("mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf");  // as systemd does; some machines run without
  MustRun(fmt::format("ip netns add {0}{1} && ip -n {0}{1} link add br0 type bridge && ip -n {0}{1} link set br0 up", prefix_, kSwitch));
  for (const std::string& host : hosts_) {
    MustRun(fmt::format("ip netns add {0}{1} && ip -n {0}{1} link set lo up", prefix_, host));
    Plug(host, "eth0", "p-" + host, "br0", Address(host));
  }
}

void DaemonLab::Plug(const std::string& host, const std::string& nic, const std::string& port, const std::string& bridge,
                     const std::string& address) {
  MustRun(fmt::format("ip -n {0}{1} link add {3} type veth peer name {4} netns {0}{2} && "
                      "ip -n {0}{1} addr add {6}/24 dev {3} && ip -n {0}{1} link set {3} up && "
                      "ip -n {0}{2} link set {4} master {5} up",
                      prefix_, host, kSwitch, nic, port, bridge, address));
  // Frames that XDP sends into a veth arrive only where its peer has a program too.
  In(kSwitch, [&] { pass_links_.push_back(AttachPassHere(port)); });
  EXPECT_TRUE(pass_links_.back());
}

void DaemonLab::AddSecondNic(const std::string& host) {
  const std::string in_switch = "ip -n " + Netns(kSwitch) + " link ";
  if (Shell(in_switch + "show br1").exit_code != 0) MustRun(in_switch + "add br1 type bridge && " + in_switch + "set br1 up");
  std::string address = Address(host);
  address.replace(address.find(".98."), 4, ".99.");
  Plug(host, "eth1", "q-" + host, "br1", address);
}

uint64_t DaemonLab::BytesFrom(const std::string& host, const std::string& nic) const {
  const std::string port = (nic == "eth0" ? "p-" : "q-") + host;
  const Json link = Json::parse(Shell("ip -n " + Netns(kSwitch) + " -s -j link show " + port).output);
  return link.at(0).at("stats64").at("rx").at("bytes");
}

DaemonLab::~DaemonLab() {
  while (!daemons_.empty()) Signal(daemons_.begin()->first, SIGINT);  // SIGTERM would leave jobs that run
  if (::testing::Test::HasFailure()) {
    for (const std::string& host : hosts_) std::fprintf(stderr, "--- %s\n%s", host.c_str(), Log(host).c_str());
  }
  pass_links_.clear();
  for (const std::string& host : hosts_) Shell("ip netns del " + Netns(host));
  Shell("ip netns del " + Netns(kSwitch));
  if (pin_root_ == folder_ / "bpf") Shell("umount " + pin_root_);
}

std::string DaemonLab::Netns(const std::string& host) const { return prefix_ + host; }

std::string DaemonLab::Address(const std::string& host) const {
  const auto index = std::find(hosts_.begin(), hosts_.end(), host) - hosts_.begin();
  return fmt::format("10.98.0.{}", index + 1);
}

std::string DaemonLab::PinPath(const std::string& host) const { return pin_root_ + "/" + prefix_ + host + ":lab"; }

std::string DaemonLab::Log(const std::string& host) const {
  std::ifstream file(folder_ / (host + ".log"));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void DaemonLab::In(const std::string& host, const std::function<void()>& body) const {
  std::thread([&] {
    const Fd netns(::open(("/run/netns/" + Netns(host)).c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_EQ(::setns(netns.get(), CLONE_NEWNET), 0);
    body();
  }).join();
}

Fd DaemonLab::AttachPass(const std::string& host) const {
  Fd link;
  In(host, [&] { link = AttachPassHere("eth0"); });
  return link;
}

void DaemonLab::UseUser(uid_t uid) {
  uid_ = uid;
  if (pin_root_ != folder_ / "bpf") {
    pin_root_ = folder_ / "bpf";
    MustRun(fmt::format("mkdir {0} && mount -t bpf -o mode=0700 bpf {0} && cp {1} {2}", pin_root_, MLNETD_BINARY, folder_ / "mlnetd"));
  }
  // As the unit does: root's daemons may have been here.
  MustRun(fmt::format("chown -R {0}:{0} {1}", uid, folder_ / ""));
}

void DaemonLab::Exec(const std::string& host) const {
  const std::string netns = "--net=/run/netns/" + Netns(host), config = ConfigFile(host);
  if (uid_ == 0) ::execlp("nsenter", "nsenter", netns.c_str(), MLNETD_BINARY, "--config", config.c_str(), nullptr);
  const std::string program = folder_ / "mlnetd", id = std::to_string(uid_), caps = "=-all,+bpf,+net_admin,+perfmon";
  ::execlp("nsenter", "nsenter", netns.c_str(), "setpriv", ("--reuid=" + id).c_str(), ("--regid=" + id).c_str(), "--clear-groups", "--no-new-privs",
           ("--inh-caps" + caps).c_str(), ("--ambient-caps" + caps).c_str(), ("--bounding-set" + caps).c_str(), "--pdeathsig=INT",
           program.c_str(), "--config", config.c_str(), nullptr);
  ::_exit(127);
}

void DaemonLab::Start(const std::string& host, const std::string& more_config) {
  std::ofstream(ConfigFile(host)) << fmt::format(
      "[daemon]\nhost = \"{0}\"\ninstance = \"{1}{0}.lab\"\nsocket = \"{2}\"\nstate_dir = \"{7}\"\n{8}\n[store]\n{3}\n"
      "{9}[[iface]]\n{4}\naggregator = {5}\n{6}\n",
      host, prefix_, Socket(host), store_, iface_, host.starts_with('a'), more_config, folder_ / (host + ".state"), daemon_,
      pin_root_ == folder_ / "bpf" ? "[datapath]\npin_root = \"" + pin_root_ + "\"\n" : "");
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGINT);  // no daemon outlives a test that crashed
    const int log = ::open((folder_ / (host + ".log")).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(log, STDERR_FILENO);
    ::dup2(log, STDOUT_FILENO);
    Exec(host);
  }
  daemons_[host] = pid;
  // The verifier takes seconds on a busy machine.
  ASSERT_TRUE(WaitUntil([&] { return rpc::Client::Connect(Socket(host)).has_value(); }, std::chrono::seconds(60))) << Log(host);
}

void DaemonLab::StartAll() {
  for (const std::string& host : hosts_) ASSERT_NO_FATAL_FAILURE(Start(host));
}

void DaemonLab::Signal(const std::string& host, int signal) {
  const pid_t pid = daemons_.at(host);
  daemons_.erase(host);
  ::kill(pid, signal);
  ::kill(pid, SIGCONT);  // one that a test has stopped, and that failed before it went on, would never end
  int status = 0;
  ::waitpid(pid, &status, 0);
  const bool is_orderly = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  EXPECT_TRUE(is_orderly || signal == SIGKILL) << host << "\n" << Log(host);
}

Json DaemonLab::Call(const std::string& host, const std::string& method, const Json& params) {
  auto client = rpc::Client::Connect(Socket(host));
  EXPECT_TRUE(client) << host;
  if (!client) return nullptr;
  auto result = client->Call(method, params, std::chrono::seconds(10));
  EXPECT_TRUE(result) << method << ": " << result.error().ToString();
  return result ? *result : Json(nullptr);
}

Error DaemonLab::CallError(const std::string& host, const std::string& method, const Json& params) {
  auto client = rpc::Client::Connect(Socket(host));
  auto result = client->Call(method, params, std::chrono::seconds(10));
  EXPECT_FALSE(result) << method << " worked";
  return result ? Error{} : result.error();
}

Json DaemonLab::ShowOver(const std::string& job) {
  Json shown;
  EXPECT_TRUE(WaitUntil([&] { return (shown = Show(job))["state"] == "closed"; })) << shown;
  return shown;
}

std::vector<Joined> DaemonLab::Join(const std::string& job, const std::vector<JoinArgs>& ranks) {
  std::vector<Joined> joined(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    joined[i].client = std::make_unique<rpc::Client>(std::move(*rpc::Client::Connect(Socket(ranks[i].host))));
    threads.emplace_back([&, i] {
      const JoinArgs& args = ranks[i];
      const auto begin = steady_clock::now();
      auto reply = joined[i].client->CallWithFds("join", {{"job", job}, {"rank", args.rank}, {"world_size", args.world_size},
                                                          {"timeout_ms", args.timeout_ms}, {"pid", ::getpid()}},
                                                 milliseconds(args.timeout_ms) + std::chrono::seconds(15));
      joined[i].took_ms = static_cast<uint64_t>(std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin).count());
      joined[i].ok = reply.has_value();
      if (reply) joined[i].reply = std::move(*reply);
      else joined[i].error = reply.error();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return joined;
}

void DaemonLab::Leave(std::vector<Joined>& ranks) {
  for (Joined& rank : ranks) EXPECT_TRUE(rank.client->Call("leave", Json::object(), std::chrono::seconds(10)));
  ranks.clear();
}

void DaemonLab::Contribute(const std::string& host, const Joined& joined, uint64_t seq, uint64_t word, uint32_t fingerprint,
                           uint8_t traffic_class) const {
  const Json& r = joined.reply.result;
  mlnet_hdr header{};
  header.version_type = wire::VersionType(MLNET_T_CONTRIB);
  header.op_wire = wire::OpWire(MLNET_OP_ADD64, MLNET_WIRE_INT64);
  header.job = r["job_id"];
  header.epoch = r["epoch"];
  const Json& tree = r["trees"][0];
  header.child = tree["child"];
  header.class_stream = MLNET_CLASS_STREAM(traffic_class, 0);
  header.words = MLNET_BLOCK_WORDS;
  header.fingerprint = fingerprint;
  wire::SetSeq(header, seq);
  mlnet_trailer trailer{};
  trailer.weight = 1;
  const std::vector<uint64_t> words(MLNET_BLOCK_WORDS, word);
  const auto signer = SignerOf(r, tree);
  std::vector<std::byte> bytes(wire::PacketBytes(words.size(), signer.get()));
  wire::Seal(header, words, trailer, bytes, signer.get());
  In(host, [&] {
    const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(r["port"].get<uint16_t>());
    inet_pton(AF_INET, tree["aggregator"].get<std::string>().c_str(), &to.sin_addr);
    EXPECT_EQ(::sendto(socket.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)),
              static_cast<ssize_t>(bytes.size()));
  });
}

void DaemonLab::ExpectSum(std::vector<Joined>& ranks, uint64_t seq) const {
  Contribute("w1", ranks[0], seq, 1000 + seq);
  Contribute("w2", ranks[1], seq, 7);
  for (Joined& rank : ranks) {
    const mlnet_cell* cells = rank.MapInbox();
    ASSERT_NE(cells, nullptr);
    const volatile mlnet_cell& cell = cells[seq * 2];  // first round: set 0
    const uint64_t stamp = MLNET_STAMP(rank.reply.result["epoch"].get<uint64_t>(), seq);
    ASSERT_TRUE(WaitUntil([&] { return cell.published == stamp; })) << "no result of " << seq;
    EXPECT_EQ(cell.weight, 2);
    EXPECT_EQ(cell.bitmap, 3u);
    for (int i = 0; i < MLNET_BLOCK_WORDS; ++i) ASSERT_EQ(cell.w[i], 1007 + seq);
    ::munmap(const_cast<mlnet_cell*>(cells), rank.reply.result["cells"].get<size_t>() * sizeof(mlnet_cell));
  }
}

int DaemonLab::NumInnerMaps(const std::string& host) const {
  int count = 0;
  for (const char* name : {"ml_jobs", "ml_words", "ml_inboxes", "ml_wakes", "ml_rings", "ml_fans"}) {
    const Fd map(bpf_obj_get((PinPath(host) + "/v" + std::to_string(MLNET_ABI_VERSION) + "/maps/" + name).c_str()));
    EXPECT_TRUE(map) << name;
    // The tests never use more than a few ids; the lowest are given first.
    for (uint32_t key = 0, id = 0; key < 128; ++key) count += bpf_map_lookup_elem(map.get(), &key, &id) == 0;
  }
  return count;
}

int DaemonLab::NumFds(const std::string& host) const {
  const std::filesystem::directory_iterator fds(fmt::format("/proc/{}/fd", Pid(host)));
  return static_cast<int>(std::distance(begin(fds), end(fds)));
}

}  // namespace mlnet::test
