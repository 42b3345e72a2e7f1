// SPDX-License-Identifier: Apache-2.0
#include "mlnetctl/output.h"

#include <gtest/gtest.h>

namespace mlnet::ctl {
namespace {

TEST(Table, AlignsColumnsAndEndsNoLineInBlanks) {
  Table table({"NAME", "N", "WHY"});
  table.AlignRight(1);
  table.Add({"a", "1", ""});
  table.Add({"longer", "12345", "x y"});
  EXPECT_EQ(table.Render(false),
            "NAME        N  WHY\n"
            "a           1\n"
            "longer  12345  x y\n");
}

TEST(Table, ColoursDoNotMoveColumns) {
  Table table({"A", "B"});
  table.Add({"x", "y"});
  table.PaintLast(0, Tone::kGood);
  EXPECT_EQ(table.Render(true), "\033[2mA\033[0m  \033[2mB\033[0m\n\033[32mx\033[0m  y\n");
}

TEST(Text, ShowsEveryKindOfMember) {
  const Json object = {{"s", "text"}, {"e", ""}, {"n", 18446744073709551615ULL}, {"t", true}, {"z", nullptr}};
  EXPECT_EQ(Text(object, "s"), "text");
  EXPECT_EQ(Text(object, "e"), "-");
  EXPECT_EQ(Text(object, "n"), "18446744073709551615");
  EXPECT_EQ(Text(object, "t"), "yes");
  EXPECT_EQ(Text(object, "z"), "-");
  EXPECT_EQ(Text(object, "absent"), "-");
  EXPECT_EQ(Text(Json::array(), "s"), "-");
}

TEST(Duration, UsesTwoUnits) {
  EXPECT_EQ(Duration(0), "0 s");
  EXPECT_EQ(Duration(59), "59 s");
  EXPECT_EQ(Duration(60), "1 min 0 s");
  EXPECT_EQ(Duration(3661), "1 h 1 min");
  EXPECT_EQ(Duration(90000), "1 d 1 h");
}

TEST(LinkSpeed, KnowsUnknown) {
  EXPECT_EQ(LinkSpeed(-1), "-");
  EXPECT_EQ(LinkSpeed(10000), "10 Gb/s");
  EXPECT_EQ(LinkSpeed(2500), "2500 Mb/s");
}

TEST(Bytes, UsesPowersOf1000) {
  EXPECT_EQ(Bytes(999), "999 B");
  EXPECT_EQ(Bytes(1000), "1.0 kB");
  EXPECT_EQ(Bytes(67108864), "67.1 MB");
}

}  // namespace
}  // namespace mlnet::ctl
