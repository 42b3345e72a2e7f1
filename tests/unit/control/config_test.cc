// SPDX-License-Identifier: Apache-2.0
// The configuration file: defaults, every kind of mistake with its place.
#include "control/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mlnet::control {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Error ErrorOf(const char* text) {
  const auto config = ParseConfig(text, "f.toml", "box");
  EXPECT_FALSE(config) << text;
  return config ? Error{} : config.error();
}

TEST(config, a_key_beyond_ascii_is_refused_and_a_value_is_taken) {
  EXPECT_FALSE(ParseConfig("A\xc4\x8e = 1", "f", "h"));
  EXPECT_FALSE(ParseConfig("[datap\xc3\xa4th]", "f", "h"));
  const auto config = ParseConfig("# gr\xc3\xb6\xc3\x9f" "er\n[datapath]\npin_root = \"/sys/fs/bpf/\xc3\xb6\"\n", "f", "h");
  ASSERT_TRUE(config) << config.error().ToString();
  EXPECT_EQ(config->pin_root, "/sys/fs/bpf/\xc3\xb6");
}

TEST(config, empty_file_gives_the_defaults) {
  const auto config = ParseConfig("", "f.toml", "box");
  ASSERT_TRUE(config) << config.error().ToString();
  EXPECT_EQ(config->host, "box");
  EXPECT_EQ(config->instance, "box");
  EXPECT_EQ(config->port, 28012);
  EXPECT_EQ(config->slots, 65536u);
  EXPECT_EQ(config->socket_mode, 0660u);
  EXPECT_EQ(config->addressing.group.base.ToString(), "239.77.0.0");
  EXPECT_EQ(config->addressing.group.bits, 16);
  EXPECT_EQ(config->addressing.group6.base.ToString(), "ff15::6d6c:0");
  EXPECT_EQ(config->addressing.group6.bits, 112);
  EXPECT_EQ(config->addressing.family, "auto");
  EXPECT_EQ(config->job.classes, 2u);
  EXPECT_TRUE(config->ifaces.empty());
}

TEST(config, store_is_a_file_or_a_cluster) {
  EXPECT_EQ(ParseConfig("[store]\nurl = \"sqlite:/x.db\"\n", "f", "h")->store, "/x.db");
  EXPECT_TRUE(ParseConfig("[store]\npath = \"/x.db\"\n", "f", "h")->etcd.endpoints.empty());
  const auto config = ParseConfig(R"(
[store]
url = "etcd:https://10.0.0.1:2379,https://[fd00::2]:2379/"
prefix = "blue"
ca = "/ca.pem"
cert = "/cert.pem"
key = "/key.pem"
user = "mlnet"
password_file = "/secret"
compact_s = 60
)", "f", "h");
  ASSERT_TRUE(config) << config.error().ToString();
  EXPECT_THAT(config->etcd.endpoints, ::testing::ElementsAre("https://10.0.0.1:2379", "https://[fd00::2]:2379"));
  EXPECT_EQ(config->etcd.prefix, "blue");
  EXPECT_EQ(config->etcd.ca, "/ca.pem");
  EXPECT_EQ(config->etcd.cert, "/cert.pem");
  EXPECT_EQ(config->etcd.key, "/key.pem");
  EXPECT_EQ(config->etcd.user, "mlnet");
  EXPECT_EQ(config->etcd.password_file, "/secret");
  EXPECT_EQ(config->etcd.compact_s, 60u);
}

TEST(config, store_that_cannot_be_meant_is_refused) {
  for (const char* text : {"url = \"etcd:10.0.0.1:2379\"", "url = \"etcd:http://a:1,\"", "url = \"http://a:1\"", "url = \"sqlite:\"",
                           "url = \"etcd:http://user@a:1\"", "url = \"etcd:http://a:1\"\npath = \"/p\"",
                           "url = \"etcd:https://a:1\"\ncert = \"/c\"", "url = \"etcd:http://a:1\"\nca = \"/c\"",
                           "url = \"etcd:http://a:1\"\nuser = \"u\"", "url = \"etcd:http://a:1\"\nprefix = \"a/b\""}) {
    EXPECT_FALSE(ParseConfig(std::string("[store]\n") + text + "\n", "f", "h")) << text;
  }
}

TEST(config, all_keys_are_read) {
  const auto config = ParseConfig(R"(
[daemon]
host = "w1"
instance = "lab-w1"
socket = "/s"
socket_mode = 0o666
log_level = "debug"
reconnect_ms = 700
[store]
path = "/p"
[datapath]
port = 5000
pin_root = "/b"
slots = 64
group_prefix = "239.1.2.0/24"
multicast = "off"
[[iface]]
name = "eth0"
mode = "auto"
share = "shared"
aggregator = true
detach_on_stop = false
[[iface]]
match = "^docker,lo"
[job]
slots = 16
classes = 3
timeout_ms = 5
rto_min_us = 7
rto_max_us = 8
window_first = 9
)", "f.toml", "box");
  ASSERT_TRUE(config) << config.error().ToString();
  EXPECT_EQ(config->host, "w1");
  EXPECT_EQ(config->instance, "lab-w1");
  EXPECT_EQ(config->socket_mode, 0666u);
  EXPECT_EQ(config->reconnect_ms, 700u);
  EXPECT_EQ(config->store, "/p");
  EXPECT_EQ(config->port, 5000);
  EXPECT_EQ(config->slots, 64u);
  EXPECT_EQ(config->addressing.group.base.ToString(), "239.1.2.0");
  ASSERT_EQ(config->ifaces.size(), 2u);
  EXPECT_EQ(config->ifaces[0].mode, "auto");
  EXPECT_EQ(config->ifaces[0].share, "shared");
  EXPECT_TRUE(config->ifaces[0].aggregator);
  EXPECT_FALSE(config->ifaces[0].detach_on_stop);
  EXPECT_EQ(config->ifaces[1].mode, "native");
  EXPECT_EQ(config->ifaces[1].match, "^docker,lo");
  EXPECT_EQ(config->job.slots, 16u);
  EXPECT_EQ(config->job.classes, 3u);
  EXPECT_EQ(config->job.rto_max_us, 8u);
  EXPECT_EQ(config->job.multicast, "off");
}

TEST(config, weights_orders_and_quotas) {
  const auto config = ParseConfig("[job]\nweight = 7\norder = \"shortest\"\nageing = 3\n"
                                  "[quota]\njobs_per_user = 2\nslots_per_job = 1024\nslots_per_user = 4096\n", "f", "h");
  ASSERT_TRUE(config) << config.error().ToString();
  EXPECT_EQ(config->job.weight, 7u);
  EXPECT_EQ(config->job.order, "shortest");
  EXPECT_EQ(config->ageing, 3.0);
  EXPECT_EQ(config->quota.jobs_per_user, 2u);
  EXPECT_EQ(config->quota.slots_per_job, 1024u);
  EXPECT_EQ(config->quota.slots_per_user, 4096u);
  EXPECT_EQ(ParseConfig("", "f", "h")->job.order, "fair");
  EXPECT_THAT(ErrorOf("[job]\nweight = 101").message, HasSubstr("1 to 100"));
  EXPECT_THAT(ErrorOf("[job]\norder = \"fast\"").message, HasSubstr("fair, shortest"));
  for (const char* bad : {"199", "1", "3600001"}) {
    EXPECT_THAT(ErrorOf((std::string("[job]\nlost_ms = ") + bad).c_str()).message, HasSubstr("job.lost_ms")) << bad;
  }
  for (const char* good : {"0", "200", "3600000"}) EXPECT_TRUE(ParseConfig(std::string("[job]\nlost_ms = ") + good, "f", "h")) << good;
  EXPECT_THAT(ErrorOf("[job]\nslots = 3").message, HasSubstr("job.slots is 3, must be a power of two"));
}

TEST(config, addresses_of_both_families) {
  const auto config = ParseConfig("[datapath]\nfamily = \"ipv6\"\ngroup_prefix6 = \"ff02::/64\"\nlocal_address6 = \"fd00::9\"\n", "f", "h");
  ASSERT_TRUE(config) << config.error().ToString();
  EXPECT_EQ(config->addressing.family, "ipv6");
  EXPECT_EQ(config->addressing.group6.base.ToString(), "ff02::");
  EXPECT_EQ(config->local_address6, "fd00::9");
  EXPECT_EQ(ParseConfig("", "f", "h")->local_address6, "fd6d:6c6e:6574::1");
  EXPECT_THAT(ErrorOf("[datapath]\nfamily = \"ipx\"").message, HasSubstr("auto, ipv4, ipv6"));
  EXPECT_THAT(ErrorOf("[datapath]\ngroup_prefix = \"ff15::/64\"").message, HasSubstr("IPv4 multicast prefix"));
  EXPECT_THAT(ErrorOf("[datapath]\ngroup_prefix6 = \"239.0.0.0/8\"").message, HasSubstr("IPv6 multicast prefix"));
  const auto without = ParseConfig("[datapath]\nlocal_address = \"\"\nlocal_address6 = \"\"\n", "f", "h");
  ASSERT_TRUE(without) << without.error().ToString();
  EXPECT_EQ(without->local_address + without->local_address6, "");
  EXPECT_THAT(ErrorOf("[datapath]\nlocal_address = 7").message, HasSubstr("must be a string"));
  EXPECT_THAT(ErrorOf("[datapath]\nlocal_address = \"fd00::9\"").message, HasSubstr("must be an IPv4 address"));
  EXPECT_THAT(ErrorOf("[datapath]\nlocal_address6 = \"10.0.0.1\"").message, HasSubstr("must be an IPv6 address"));
}

TEST(config, etcd_may_be_reached_by_ipv6) {
  const auto config = ParseConfig("[store]\nurl = \"etcd:http://[::1]:2379,https://[fd77::2]:2379/\"\n", "f", "h");
  ASSERT_TRUE(config) << config.error().ToString();
  EXPECT_THAT(config->etcd.endpoints, testing::ElementsAre("http://[::1]:2379", "https://[fd77::2]:2379"));
}

TEST(config, socket_mode_may_be_an_octal_string) {
  EXPECT_EQ(ParseConfig("[daemon]\nsocket_mode = \"0640\"", "f", "h")->socket_mode, 0640u);
  EXPECT_THAT(ErrorOf("[daemon]\nsocket_mode = \"0980\"").message, StartsWith("f.toml:2:15: daemon.socket_mode"));
}

TEST(config, unknown_key_has_its_place_and_a_suggestion) {
  const Error error = ErrorOf("[daemon]\nhost = \"a\"\n  sokcet = \"/x\"\n");
  EXPECT_EQ(error.message, "f.toml:3:3: unknown key 'daemon.sokcet'");
  EXPECT_EQ(error.hint, "did you mean 'socket'?");
}

TEST(config, unknown_table_has_its_place_and_a_suggestion) {
  const Error error = ErrorOf("\n[deamon]\nhost = \"a\"\n");
  EXPECT_THAT(error.message, StartsWith("f.toml:2:"));
  EXPECT_EQ(error.hint, "did you mean 'daemon'?");
}

TEST(config, key_that_resembles_nothing_has_no_suggestion) {
  EXPECT_THAT(ErrorOf("[store]\nzzzzzzzz = 1\n").hint, HasSubstr("mlnetd.toml"));
}

TEST(config, wrong_values_have_their_place_and_say_what_fits) {
  struct Case {
    const char* text;
    const char* place;
    const char* says;
  };
  for (const Case& c : {
           Case{"[datapath]\nport = 0", "f.toml:2:8: ", "integer from 1 to 65535"},
           Case{"[datapath]\nport = \"a\"", "f.toml:2:8: ", "integer"},
           Case{"[datapath]\nmulticast = \"maybe\"", "f.toml:2:13: ", "auto, on, off"},
           Case{"[datapath]\ngroup_prefix = \"10.0.0.0/8\"", "f.toml:2:16: ", "multicast prefix"},
           Case{"[[iface]]\nname = \"a\"\naggregator = 1", "f.toml:3:14: ", "true or false"},
           Case{"[[iface]]\nmode = \"native\"", "f.toml:1:1: ", "iface.name is missing"},
           Case{"[[iface]]\nname = \"a\"\nmatch = \"b\"", "f.toml:3:9: ", "two ways to choose"},
           Case{"[[iface]]\nname = \"^lo\"", "f.toml:2:8: ", "match = \"^lo\""},
           Case{"[[iface]]\nmatch = \"eth0,^lo\"", "f.toml:2:9: ", "come first"},
           Case{"[iface]\nname = \"a\"", "f.toml:1:1: ", "[[iface]]"},
           Case{"[job]\nslots = 3", "f.toml:2:9: ", "power of two"},
           Case{"[daemon]\nhost = \"a b\"", "f.toml:2:8: ", "1 to 63"},
           Case{"[daemon]\nhost = \"\"", "f.toml:2:8: ", "non-empty"},
           Case{"[daemon\n", "f.toml:1:", ""},
       }) {
    const Error error = ErrorOf(c.text);
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.message, StartsWith(c.place)) << c.text;
    EXPECT_THAT(error.message, HasSubstr(c.says)) << c.text;
  }
}

TEST(config, priority_table_and_ceiling) {
  const auto config = ParseConfig("[priority]\ndscp = [0, 10, 18, 26, 34, 46, 48, 63]\nattach = \"clsact\"\n[job]\nceiling = 4\n", "f", "h");
  ASSERT_TRUE(config) << config.error().ToString();
  EXPECT_EQ(config->priority.dscp, (DscpTable{0, 10, 18, 26, 34, 46, 48, 63}));
  EXPECT_EQ(config->priority.attach, "clsact");
  EXPECT_EQ(config->job.ceiling, 4u);
  EXPECT_EQ(ParseConfig("", "f", "h")->priority.dscp, (DscpTable{0, 8, 16, 24, 32, 40, 48, 56}));
  for (const char* bad : {"[0, 1, 2]", "[0, 8, 16, 24, 32, 40, 48, 64]", "[0, 8, 16, 24, 32, 40, 48, \"CS7\"]", "7"}) {
    EXPECT_THAT(ErrorOf((std::string("[priority]\ndscp = ") + bad).c_str()).message, HasSubstr("priority.dscp must be 8 integers from 0 to 63"));
  }
  EXPECT_THAT(ErrorOf("[job]\nceiling = 8\n").message, HasSubstr("job.ceiling"));
}

TEST(config, first_mistake_is_the_one_reported) {
  EXPECT_THAT(ErrorOf("[daemon]\nhots = \"a\"\n[job]\nslots = 3\n").message, HasSubstr("daemon.hots"));
}

TEST(config, missing_file_is_named) {
  const auto config = LoadConfig("/nonexistent/mlnetd.toml");
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message, HasSubstr("/nonexistent/mlnetd.toml"));
}

TEST(config, a_folder_is_no_empty_file) {
  const auto config = LoadConfig("/");
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message, HasSubstr("Is a directory"));
}

TEST(config, names_are_checked) {
  EXPECT_TRUE(IsName("a.B_9-x"));
  for (const char* bad : {"", "a/b", "a b", ".", "..", "\xc3\xa4"}) EXPECT_FALSE(IsName(bad)) << bad;
  EXPECT_TRUE(IsName(std::string(63, 'a')));
  EXPECT_FALSE(IsName(std::string(64, 'a')));
}

}  // namespace
}  // namespace mlnet::control
