// SPDX-License-Identifier: Apache-2.0
#include "control_link.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "base/errno_error.h"
#include "base/ip_address.h"

namespace mlnet::worker {
namespace {

constexpr int kServerRank = -1;  // to mlnetd
constexpr size_t kJoinFds = 3;  // inbox, wake map, notice ring; what follows is only held
constexpr uint64_t kFirstRetryNs = 20'000'000;
constexpr uint64_t kLastRetryNs = 320'000'000;
constexpr uint64_t kLeaveWaitNs = 5'000'000'000;  // as long as mlnetd waits for ranks after a restart
constexpr std::chrono::milliseconds kReplySlack{2000};  // the daemon names who is missing; let it

// Reads fields one after the other; the first that is missing or wrong decides.
class Fields {
 public:
  explicit Fields(const rpc::Json& object) : object_(object) {}

  template <typename T>
  T Take(const char* name) {
    if (error_) return T{};
    auto value = rpc::Get<T>(object_, name);
    if (value) return *value;
    error_ = Error{ErrorCode::kProtocol, "mlnetd's answer to join: " + value.error().message,
                   "run the same mlnet version of daemon and library"};
    return T{};
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  const rpc::Json& object_;
  std::optional<Error> error_;
};

Error VersionError(const std::string& what) {
  return {ErrorCode::kProtocol, "mlnetd's answer to join " + what, "run the same mlnet version of daemon and library"};
}

std::optional<Error> TakePools(const rpc::Json& reply, TreeConfig& tree) {
  const auto pools = reply.find("pools");
  if (pools == reply.end() || !pools->is_array()) return VersionError("has no pools");
  for (const auto& pool : *pools) {
    Fields fields(pool);
    const auto traffic_class = fields.Take<uint32_t>("class");
    const auto stream = fields.Take<uint32_t>("stream");
    const auto log2_slots = fields.Take<uint8_t>("log2_slots");
    const auto cell_base = fields.Take<uint32_t>("cell_base");
    if (fields.error()) return fields.error();
    if (traffic_class >= MLNET_CLASSES_MAX || stream >= MLNET_STREAMS_MAX || log2_slots > 20) {
      return VersionError("has an impossible pool");
    }
    (stream == 0 ? tree.pools : tree.fixups)[traffic_class] = {true, log2_slots, cell_base, 0};
  }
  for (size_t c = 0; c < MLNET_CLASSES_MAX; ++c) {
    if (tree.pools[c].is_open != tree.fixups[c].is_open) return VersionError("lacks a stream of class " + std::to_string(c));
  }
  return std::nullopt;
}

std::optional<Error> TakeTrees(const rpc::Json& reply, uint16_t port, JoinReply& out) {
  const auto trees = reply.find("trees");
  if (trees == reply.end() || !trees->is_array() || trees->empty()) return VersionError("has no trees");
  out.config.trees.clear();
  for (const auto& object : *trees) {
    Fields fields(object);
    TreeConfig tree;
    UdpEndpoints endpoints;
    tree.tree = fields.Take<uint8_t>("tree");
    tree.child = fields.Take<uint8_t>("child");
    tree.weight = fields.Take<uint32_t>("weight");
    endpoints.local_address = fields.Take<std::string>("address");
    endpoints.aggregator_address = fields.Take<std::string>("aggregator");
    endpoints.port = port;
    tree.children = fields.Take<std::vector<std::vector<int>>>("children");
    tree.above = fields.Take<std::vector<std::vector<int>>>("above");
    if (fields.error()) return fields.error();
    if (auto error = TakePools(object, tree)) return error;
    const auto aggregator = IpAddress::Parse(endpoints.aggregator_address);
    if (!aggregator) return VersionError("has no IP address '" + endpoints.aggregator_address + "'");
    tree.aggregator = aggregator->WithPort(port);
    out.config.trees.push_back(std::move(tree));
    out.endpoints.push_back(std::move(endpoints));
  }
  return std::nullopt;
}

uint64_t WorkBytesOf(const JoinOptions& options) {
  const char* text = std::getenv("MLNET_WORK_BYTES");
  return options.work_bytes != 0 || text == nullptr ? options.work_bytes : std::strtoull(text, nullptr, 10);
}

bool WantsMac(const JoinOptions& options) {
  const char* text = std::getenv("MLNET_MAC");
  return options.mac || (text != nullptr && std::string_view(text) == "1");
}

// The key travels here only: over the rank's own connection.
std::optional<Error> TakeKey(const rpc::Json& json, JoinReply& reply) {
  const auto found = json.find("key");
  if (found == json.end()) return std::nullopt;
  const auto job_key = found->is_string() ? wire::KeyFromHex(found->get<std::string>()) : std::nullopt;
  if (!job_key) return VersionError("has a key that is none");
  reply.config.ring_key = wire::DeriveStreamKey(*job_key, reply.config.job, reply.config.epoch);
  const auto key = std::make_shared<const mlnet_key>(wire::DeriveKey(*job_key, reply.config.job, reply.config.epoch));
  for (size_t t = 0; t < reply.endpoints.size(); ++t) {
    const auto from = IpAddress::Parse(reply.endpoints[t].local_address), to = IpAddress::Parse(reply.endpoints[t].aggregator_address);
    if (!from || !to) return VersionError("has no IP address '" + reply.endpoints[t].local_address + "'");
    reply.config.trees[t].signer = std::make_shared<const wire::Signer>(key, from->mapped(), to->mapped());
  }
  return std::nullopt;
}

Result<JoinReply> ParseJoin(const rpc::Json& json) {
  JoinReply reply;
  EngineConfig& config = reply.config;
  Fields fields(json);
  config.job = fields.Take<uint16_t>("job_id");
  config.epoch = fields.Take<uint16_t>("epoch");
  config.rank = fields.Take<int>("rank");
  config.world_size = fields.Take<int>("world_size");
  config.blocks = fields.Take<uint32_t>("blocks");
  config.timeout_ns = fields.Take<uint64_t>("timeout_ms") * 1'000'000;
  config.rto_min_ns = fields.Take<uint64_t>("rto_min_us") * 1'000;
  config.rto_max_ns = fields.Take<uint64_t>("rto_max_us") * 1'000;
  config.ping_ns = fields.Take<uint64_t>("ping_ms") * 1'000'000;
  config.window_first = fields.Take<uint32_t>("window_first");
  config.has_server = fields.Take<bool>("server");
  config.starts_in_ring = rpc::GetOr<bool>(json, "ring", false).value_or(false);
  reply.local_index = fields.Take<uint32_t>("local_index");
  const auto port = fields.Take<uint16_t>("port");
  if (fields.error()) return tl::make_unexpected(*fields.error());
  if (config.blocks == 0 || config.blocks > MLNET_BLOCKS_MAX || reply.local_index >= MLNET_CHILDREN_MAX) {
    return tl::make_unexpected(VersionError("is out of range"));
  }
  if (auto error = TakeTrees(json, port, reply)) return tl::make_unexpected(*error);
  if (auto error = TakeKey(json, reply)) return tl::make_unexpected(*error);
  return reply;
}

RingOrder RingOrderOf(const rpc::Json& body) {
  const auto text = [&body](const char* key) { return rpc::GetOr<std::string>(body, key, "").value_or(""); };
  return {text("job"), text("why"), text("address"), text("token")};
}

RingPeers RingPeersOf(const rpc::Json& body) {
  const rpc::Json none = rpc::Json::object();
  const auto of = [&](const char* key) -> const rpc::Json& {
    const auto it = body.find(key);
    return it != body.end() && it->is_object() ? *it : none;
  };
  const rpc::Json &next = of("next"), &previous = of("previous");
  return {rpc::GetOr<int>(next, "rank", 0).value_or(0),
          rpc::GetOr<std::string>(next, "host", "").value_or(""),
          rpc::GetOr<std::string>(next, "address", "").value_or(""),
          rpc::GetOr<uint16_t>(next, "port", 0).value_or(0),
          rpc::GetOr<int>(previous, "rank", 0).value_or(0),
          rpc::GetOr<std::string>(previous, "host", "").value_or("")};
}

bool RequiresKernel(const JoinOptions& options) {
  const char* text = std::getenv("MLNET_REQUIRE_MODE");
  return options.requires_kernel || (text != nullptr && std::string(text) == "kernel");
}

}  // namespace

Result<std::unique_ptr<ControlLink>> ControlLink::Connect(const std::string& socket_path) {
  const std::string path = socket_path.empty() ? rpc::DefaultSocket() : socket_path;
  auto client = rpc::Client::Connect(path);
  if (!client) return tl::make_unexpected(client.error());
  return std::unique_ptr<ControlLink>(new ControlLink(std::move(*client), path));
}

Result<JoinReply> ControlLink::Join(const JoinOptions& options, bool is_server) {
  rpc::Json params = {{"job", options.job},
                            {"rank", is_server ? kServerRank : options.rank},
                            {"world_size", options.world_size},
                            {"timeout_ms", options.timeout.count()},
                            {"pid", ::getpid()},
                            {"pings", !is_server},
                            {"ring", !is_server && !RequiresKernel(options)}};
  if (const uint64_t work_bytes = WorkBytesOf(options); work_bytes != 0) params["work_bytes"] = work_bytes;
  if (options.classes != 0) params["classes"] = options.classes;
  if (WantsMac(options)) params["mac"] = true;
  auto answer = client_.CallWithFds("join", params, options.timeout + kReplySlack);
  if (!answer) return tl::make_unexpected(answer.error());
  return TakeAnswer(options, is_server, std::move(*answer));
}

Result<JoinReply> ControlLink::Shrink(const JoinOptions& options, const ShrinkOptions& shrink, int world_size) {
  if (!is_connected_) {
    return Err(ErrorCode::kUnavailable, "mlnetd at " + path_ + " has stopped since: this rank is no member of the job any more", "start the job again");
  }
  const rpc::Json params = {{"wait_ms", shrink.wait.count()}, {"timeout_ms", shrink.timeout.count()}};
  auto answer = client_.CallWithFds("shrink", params, shrink.timeout + kReplySlack);
  client_.DropPushes();  // of the job that has failed: what is about the next one comes after the answer
  if (!answer) return tl::make_unexpected(answer.error());
  const auto shrunk = answer->result.find("shrunk");
  if (shrunk == answer->result.end() || !shrunk->is_object()) return tl::make_unexpected(VersionError("does not say who is left"));
  auto former_ranks = rpc::Get<std::vector<int>>(*shrunk, "former_ranks");
  if (!former_ranks) return tl::make_unexpected(VersionError("does not say who is left"));
  ShrinkReport report{std::move(*former_ranks), {}, rpc::GetOr<std::string>(*shrunk, "why", "").value_or("")};
  for (int rank = 0; rank < world_size; ++rank) {
    if (std::find(report.former_ranks.begin(), report.former_ranks.end(), rank) == report.former_ranks.end()) report.lost.push_back(rank);
  }
  memberships_.clear();
  auto reply = TakeAnswer(options, /*is_server=*/false, std::move(*answer));
  if (reply) reply->shrunk = std::move(report);
  is_over_ = false;
  unheard_abort_ = nullptr;
  return reply;
}

Result<JoinReply> ControlLink::TakeAnswer(const JoinOptions& options, bool is_server, rpc::Reply answer) {
  auto reply = ParseJoin(answer.result);
  if (!reply) return reply;
  if (WantsMac(options) && !reply->config.ring_key) return tl::make_unexpected(VersionError("has no key for the tags that this rank asks for"));
  const auto incarnation = rpc::Get<uint64_t>(answer.result, "incarnation");
  if (!incarnation) return tl::make_unexpected(VersionError("has no incarnation"));
  identity_ = {{"job", options.job}, {"incarnation", *incarnation}, {"rank", is_server ? kServerRank : reply->config.rank}};
  if (answer.fds.size() < kJoinFds) {
    return Err(ErrorCode::kProtocol, "mlnetd's answer to join carries " + std::to_string(answer.fds.size()) +
                                         " descriptors instead of inbox, wake map and notice ring");
  }
  reply->inbox = std::move(answer.fds[0]);
  reply->wake = std::move(answer.fds[1]);
  reply->ring = std::move(answer.fds[2]);
  std::move(answer.fds.begin() + kJoinFds, answer.fds.end(), std::back_inserter(memberships_));
  reply->config.is_server = is_server;
  if (is_server) reply->config.rank = reply->config.world_size;
  if (is_server) reply->config.ping_ns = 0;
  reply->config.small_bytes = options.small_bytes;
  reply->config.timeout_ns = static_cast<uint64_t>(options.timeout.count()) * 1'000'000;
  return reply;
}

void ControlLink::Notify(const std::string& method, const rpc::Json& params) {
  if (is_connected_ && !client_.Notify(method, params)) Lose();
}

void ControlLink::Lose() {
  is_connected_ = false;
  retry_ns_ = kFirstRetryNs;
  next_look_ns_ = clock_.NowNs();
}

bool ControlLink::Return() {
  if (!is_looking() || clock_.NowNs() < next_look_ns_) return false;
  next_look_ns_ = clock_.NowNs() + retry_ns_;
  retry_ns_ = std::min(2 * retry_ns_, kLastRetryNs);
  auto client = rpc::Client::Connect(path_);
  if (!client) return false;
  client_ = std::move(*client);
  is_connected_ = true;
  Notify("attach", identity_);
  if (!unheard_abort_.is_null()) Notify("abort", unheard_abort_);
  return is_connected_;
}

void ControlLink::Leave() {
  const uint64_t until_ns = clock_.NowNs() + kLeaveWaitNs;
  while (is_looking() && !Return() && clock_.NowNs() < until_ns) {
    ::poll(nullptr, 0, static_cast<int>(kFirstRetryNs / 1'000'000));
  }
  Notify("leave", rpc::Json::object());
}

void ControlLink::Describe(uint64_t ordinal, uint32_t fingerprint, const std::string& text) {
  Notify("describe", {{"collective", ordinal}, {"fingerprint", fingerprint}, {"text", text}});
}

void ControlLink::Abort(const Error& error) {
  const std::string hint = error.hint.empty() ? "" : " (" + error.hint + ")";
  const rpc::Json abort = {{"code", ErrorCodeName(error.code)}, {"message", error.message + hint}};
  Notify("abort", abort);
  if (!is_connected_) unheard_abort_ = abort;
}

void ControlLink::Report(const CommStats& s) {
  Notify("report", {{"packets_sent", s.packets_sent},
                    {"retransmits", s.retransmits},
                    {"early_resends", s.early_resends},
                    {"results", s.results},
                    {"bytes", s.bytes},
                    {"summed_in_kernel", s.summed_in_kernel},
                    {"summed_in_user_space", s.summed_in_user_space},
                    {"probes", s.probes},
                    {"wide_blocks", s.wide_blocks},
                    {"nonfinite_packets", s.nonfinite_packets},
                    {"repairs", s.repairs},
                    {"held", s.held},
                    {"busy", s.busy},
                    {"sleeps", s.sleeps},
                    {"rtt_us", s.rtt_us},
                    {"summed_in_ring", s.summed_in_ring},
                    {"marked", s.marked}});
}

void ControlLink::Traced(const std::vector<TraceRecord>& records, bool is_last) {
  rpc::Json rows = rpc::Json::array();
  for (const TraceRecord& r : records) {
    rows.push_back({{"what", r.what}, {"tree", r.tree}, {"class", r.traffic_class}, {"stream", r.stream}, {"first_seq", r.first_seq},
                    {"packets", r.packets}, {"bytes", r.bytes}, {"called_ns", r.called_ns}, {"sent_first_ns", r.sent_first_ns},
                    {"sent_last_ns", r.sent_last_ns}, {"received_ns", r.received_ns}, {"done_ns", r.EndNs()}});
  }
  Notify("traced", {{"records", std::move(rows)}, {"is_last", is_last}});
}

Pushes ControlLink::TakePushes() {
  Pushes pushes;
  if (Return()) {
    // The daemon knows nothing of what the one before it said.
    pushes.grant = Grant{};
    pushes.is_traced = false;
  }
  while (is_connected_ && !pushes.failure) {
    auto push = client_.NextPush();
    if (!push) Lose();
    if (!push || !*push) return pushes;
    TakePush(**push, pushes);
  }
  return pushes;
}

void ControlLink::TakePush(const rpc::Json& body, Pushes& pushes) {
  const std::string event = rpc::GetOr<std::string>(body, "event", "").value_or("");
  if (event == "policy") {
    pushes.policy = PushedPolicy{rpc::GetOr<uint64_t>(body, "rto_min_us", 0).value_or(0) * 1'000,
                                 rpc::GetOr<uint64_t>(body, "rto_max_us", 0).value_or(0) * 1'000};
  } else if (event == "grant") {
    pushes.grant = Grant{rpc::GetOr<uint32_t>(body, "window", 0).value_or(0),
                         rpc::GetOr<uint64_t>(body, "gap_us", 0).value_or(0) * 1'000,
                         rpc::GetOr<bool>(body, "waits", false).value_or(false),
                         rpc::GetOr<int>(body, "dscp", -1).value_or(-1)};
  } else if (event == "trace") {
    pushes.is_traced = rpc::GetOr<bool>(body, "on", false).value_or(false);
  } else if (event == "describe") {
    pushes.is_asked_to_describe = true;
  } else if (event == "ring_open") {
    pushes.ring_order = RingOrderOf(body);
  } else if (event == "ring_join") {
    pushes.ring_peers = RingPeersOf(body);
  } else if (event == "job_failed") {
    const auto code = ErrorCodeFromName(rpc::GetOr<std::string>(body, "code", "").value_or(""));
    pushes.failure = Error{code.value_or(ErrorCode::kProtocol),
                           rpc::GetOr<std::string>(body, "message", "the job failed").value_or("the job failed"),
                           rpc::GetOr<std::string>(body, "hint", "").value_or("")};
    is_over_ = true;
  } else if (event == "attached") {
    unheard_abort_ = nullptr;
  }
}

}  // namespace mlnet::worker
