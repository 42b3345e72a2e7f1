// SPDX-License-Identifier: Apache-2.0
// mlnetctl qos, and the marks that stats counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/mlnetctl/command_fixture.h"

namespace mlnet::ctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Json kSet = {{"iface", "eth0"},
                   {"is_set", true},
                   {"mode", "strict"},
                   {"qdisc", "htb"},
                   {"before", "fq_codel"},
                   {"note", "frames that XDP sends pass no queue"},
                   {"classes",
                    {{{"class", 7}, {"dscp", 56}, {"priority", 7}, {"band", 0}, {"queue", "6d6c:10"}, {"weight", nullptr}},
                     {{"class", "waiting jobs"}, {"dscp", 1}, {"priority", 8}, {"band", 8}, {"queue", "6d6c:18"}, {"weight", nullptr}}}}};

TEST_F(Command, QosShowPrintsTheMapping) {
  const Json unset = {{"iface", "eth1"}, {"is_set", false}, {"qdisc", "mq"}, {"classes", Json::array()}};
  EXPECT_EQ(RunWith("qos.show", Json{{"schema", "mlnet.qos.show/1"}, {"ifaces", {kSet, unset}}}, {"qos", "show"}), 0);
  EXPECT_EQ(out_,
            "eth0: strict priority by htb, in the place of fq_codel\n"
            "  CLASS         DSCP  PRIORITY  BAND  QUEUE    WEIGHT\n"
            "  7               56         7     0  6d6c:10       -\n"
            "  waiting jobs     1         8     8  6d6c:18       -\n"
            "  frames that XDP sends pass no queue\n"
            "eth1: no queues by priority, its qdisc is mq\n");
  EXPECT_THAT(daemon_.requests(), ElementsAre("qos.show {}"));
}

TEST_F(Command, QosSetAndClearSendWhatWasGiven) {
  daemon_.On("qos.set", kSet);
  daemon_.On("qos.clear", Json{{"iface", "eth0"}, {"is_set", false}, {"qdisc", "fq_codel"}});
  daemon_.Start();
  EXPECT_EQ(Run({"qos", "set", "eth0"}), 0);
  EXPECT_EQ(Run({"-j", "qos", "set", "eth0", "--weights", "1,1,2,2,4,4,8,8", "--rate", "25gbit", "--kind", "ets"}), 0);
  EXPECT_EQ(Json::parse(out_), kSet);
  EXPECT_EQ(Run({"qos", "clear", "eth0"}), 0);
  EXPECT_EQ(out_, "eth0: no queues by priority, its qdisc is fq_codel\n");
  EXPECT_EQ(Run({"qos", "set", "eth0", "--weights", "1,2"}), 2);
  EXPECT_EQ(Run({"qos", "set", "eth0", "--kind", "cake"}), 2);
  EXPECT_THAT(daemon_.requests(),
              ElementsAre(R"(qos.set {"name":"eth0"})",
                          R"(qos.set {"kind":"ets","name":"eth0","rate":"25gbit","weights":[1,1,2,2,4,4,8,8]})",
                          R"(qos.clear {"name":"eth0"})"));
}

TEST_F(Command, StatsShowsWhatBecameOfMarks) {
  const Json stats = {{"schema", "mlnet.stats/1"},
                      {"verdicts", Json::object()},
                      {"tags", {{{"class", 5}, {"outcome", "OVERRULED"}, {"packets", 12}, {"help", "had another DSCP"}}}}};
  EXPECT_EQ(RunWith("stats", stats, {"stats"}), 0);
  EXPECT_THAT(out_, HasSubstr("  CLASS  SENT       PACKETS  MEANING\n"
                              "  5      OVERRULED       12  had another DSCP\n"));
}

TEST_F(Command, JobCreatePassesTheCeiling) {
  EXPECT_EQ(RunWith("job.create", Json{{"name", "demo"}, {"state", "joining"}}, {"job", "create", "demo", "-n", "2", "--ceiling", "0"}), 0);
  EXPECT_THAT(daemon_.requests(), ElementsAre(R"(job.create {"ceiling":0,"name":"demo","world_size":2})"));
  EXPECT_EQ(Run({"job", "create", "demo", "-n", "2", "--ceiling", "8"}), 2);
}

}  // namespace
}  // namespace mlnet::ctl
