// SPDX-License-Identifier: Apache-2.0
// The ring of a job whose packets carry tags: what does not come from the previous rank, as it was said and in its turn, is
// not heard, and ends the job by name where it is in the stream.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "ring/ring_port.h"
#include "unit/worker/ring_ranks.h"

namespace mlnet::worker {
namespace {

using ::testing::HasSubstr;

constexpr wire::StreamKey kKey{0x0706050403020100, 0x0f0e0d0c0b0a0908};
constexpr size_t kHelloBytes = sizeof(RingHeader) + sizeof(RingHello) + sizeof(uint64_t);

Fd ConnectTo(uint16_t port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  return socket;
}

/// Between two ranks: passes on what it reads, or something else.
class Relay {
 public:
  explicit Relay(uint16_t to) : listener_(::socket(AF_INET, SOCK_STREAM, 0)), out_(ConnectTo(to)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(any);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&any), sizeof(any)), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&any), &bytes), 0);
    port_ = ntohs(any.sin_port);
  }
  uint16_t port() const { return port_; }

  void Turn() {
    if (!in_) in_ = Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK));
    std::array<char, 4096> bytes;
    const ssize_t n = in_ ? ::recv(in_.get(), bytes.data(), std::min(bytes.size(), most - passed.size()), MSG_DONTWAIT) : 0;
    if (n <= 0) return;
    if (is_changing && passed.size() >= kHelloBytes) bytes[0] ^= 2;
    passed.append(bytes.data(), static_cast<size_t>(n));
    EXPECT_EQ(::send(out_.get(), bytes.data(), static_cast<size_t>(n), 0), n);
  }
  void Say(const std::string& bytes) { EXPECT_EQ(::send(out_.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size())); }

  bool is_changing = false;  // a bit of what follows the hello
  size_t most = SIZE_MAX;    // bytes that are passed on; what follows them is lost
  std::string passed;

 private:
  Fd listener_, in_, out_;
  uint16_t port_ = 0;
};

/// Three ranks with a key; what rank 0 says to rank 1 goes by a relay.
struct RelayedRing {
  RelayedRing() : ranks(3, 0, 20'000'000'000, kKey) {
    ranks.OpenAll();
    relay.emplace(ranks.port(1));
    ranks.ConnectBy(0, relay->port());
    for (const size_t r : {1, 2}) ranks.Connect(r);
  }
  bool RunUntil(const std::function<bool()>& condition) {
    return ranks.RunUntil([&] {
      relay->Turn();
      return condition();
    });
  }
  bool Begins() {
    return RunUntil([&] { return ranks[0].member.ring() && ranks[1].member.ring() && ranks[2].member.ring(); });
  }
  void ExpectRefused() {
    ASSERT_TRUE(RunUntil([&] { return ranks[1].failure.has_value(); }));
    EXPECT_EQ(ranks[1].failure->code, ErrorCode::kProtocol);
    EXPECT_THAT(ranks[1].failure->message, HasSubstr("that was to come from rank 0 has not the tag of the job's key"));
  }
  RingRanks ranks;
  std::optional<Relay> relay;
};

std::vector<CollectiveSpec> Sums(std::vector<std::vector<int32_t>>& data) {
  std::vector<CollectiveSpec> specs;
  for (auto& of_rank : data) {
    CollectiveSpec spec;
    spec.kind = CollectiveKind::kAllReduce;
    spec.dtype = DataType::kInt32;
    spec.in = spec.out = of_rank.data();
    spec.count = of_rank.size();
    specs.push_back(spec);
  }
  return specs;
}

// The vector of 15 bytes that the authors publish, key and input 00 01 02 ..., and one whose length is a multiple of 8.
TEST(StreamTagTest, is_siphash_of_the_words_and_the_bytes) {
  std::array<std::byte, 16> input;
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<std::byte>(i);
  const std::array<uint64_t, 1> first = {0x0706050403020100};
  EXPECT_EQ(wire::TagOf(kKey, {}, std::span(input).first(15)), 0xa129ca6149be45e5);
  EXPECT_EQ(wire::TagOf(kKey, first, std::span(input).subspan(8, 7)), 0xa129ca6149be45e5);
  EXPECT_EQ(wire::TagOf(kKey, first, {}), 0x93f5f5799a932462);
  EXPECT_EQ(wire::TagOf(kKey, {}, {}), 0x726fdb47dd0e0e31);
}

TEST(StreamTagTest, keys_of_epochs_and_of_packets_have_nothing_in_common) {
  constexpr wire::JobKey kJobKey{1, 2, 3};
  const wire::StreamKey key = wire::DeriveStreamKey(kJobKey, 5, 2);
  EXPECT_NE(key, wire::DeriveStreamKey(kJobKey, 5, 3));
  EXPECT_NE(key, wire::DeriveStreamKey(kJobKey, 6, 2));
  const mlnet_key packets = wire::DeriveKey(kJobKey, 5, 2);
  for (const uint64_t word : key) {
    EXPECT_EQ(std::count(std::begin(packets.nh), std::end(packets.nh), word), 0);
    EXPECT_EQ(std::count(std::begin(packets.sip), std::end(packets.sip), word), 0);
  }
}

TEST(RingKeyTest, sums_are_the_same) {
  RelayedRing ring;
  ASSERT_TRUE(ring.Begins());
  std::vector<std::vector<int32_t>> data(3, std::vector<int32_t>(50'000, 7));
  std::vector<std::shared_ptr<Work>> works;
  for (const auto& spec : Sums(data)) works.push_back(ring.ranks[works.size()].engine.Submit(spec));
  ASSERT_TRUE(ring.RunUntil([&] { return std::all_of(works.begin(), works.end(), [](const auto& w) { return w->IsDone(); }); }));
  for (const auto& of_rank : data) EXPECT_EQ(std::count(of_rank.begin(), of_rank.end(), 21), 50'000);
  EXPECT_EQ(ring.ranks[0].engine.Stats().summed_in_ring, ring.ranks[0].engine.Stats().results);
}

TEST(RingKeyTest, a_message_that_was_changed_on_the_way_ends_the_job) {
  RelayedRing ring;
  ring.relay->is_changing = true;
  ring.ExpectRefused();
}

TEST(RingKeyTest, a_message_that_is_said_again_ends_the_job) {
  RelayedRing ring;
  ASSERT_TRUE(ring.Begins());
  EXPECT_FALSE(ring.ranks[1].failure);
  ring.relay->Say(ring.relay->passed.substr(kHelloBytes));
  ring.ExpectRefused();
}

// Nor is what a rank hears what it could say to the next one.
TEST(RingKeyTest, a_message_of_another_rank_ends_the_job) {
  RingRanks ranks(3, 0, 20'000'000'000, kKey);
  ASSERT_NO_FATAL_FAILURE(ranks.OpenAll());
  Relay from_2(ranks.port(0)), from_0(ranks.port(1));
  from_0.most = kHelloBytes;  // so that the numbers are right
  ranks.ConnectBy(2, from_2.port());
  ranks.ConnectBy(0, from_0.port());
  ranks.Connect(1);
  ASSERT_TRUE(ranks.RunUntil([&] {
    from_2.Turn();
    from_0.Turn();
    return from_2.passed.size() > kHelloBytes && from_0.passed.size() == kHelloBytes;
  }));
  from_0.Say(from_2.passed.substr(kHelloBytes));
  ASSERT_TRUE(ranks.RunUntil([&] { return ranks[1].failure.has_value(); }));
  EXPECT_THAT(ranks[1].failure->message, HasSubstr("has not the tag of the job's key"));
}

TEST(RingKeyTest, who_knows_the_token_but_not_the_key_is_not_heard) {
  RingRanks ranks(2, 0, 20'000'000'000, kKey);
  ASSERT_NO_FATAL_FAILURE(ranks.OpenAll());
  const Fd stranger = ConnectTo(ranks.port(0));
  struct {
    RingHeader header{sizeof(RingHello), static_cast<uint16_t>(RingKind::kHello), 1};
    RingHello hello{1, 5, 2, {}};
    uint64_t tag = 0x1122334455667788;
  } message;
  static_assert(sizeof(message) == kHelloBytes);
  std::memcpy(message.hello.token, RingRanks::kToken, kRingTokenBytes);
  ASSERT_EQ(::send(stranger.get(), &message, sizeof(message), 0), static_cast<ssize_t>(sizeof(message)));
  ranks.Connect(0);
  char byte;
  ASSERT_TRUE(ranks.RunUntil([&] { return ::recv(stranger.get(), &byte, 1, MSG_DONTWAIT) == 0; })) << "it is sent away";
  ranks.Connect(1);
  EXPECT_TRUE(ranks.RunUntil([&] { return ranks[0].member.ring() != nullptr && ranks[1].member.ring() != nullptr; }));
}

}  // namespace
}  // namespace mlnet::worker
