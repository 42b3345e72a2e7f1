// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perf_sizes.h"

namespace mlnet::lab {
namespace {

using testing::ElementsAre;

std::vector<uint64_t> Sizes(const std::string& text) {
  const auto sizes = ParseSizes(text);
  return sizes ? *sizes : std::vector<uint64_t>{};
}

TEST(ParseSizes, KnowsSuffixesListsAndRanges) {
  EXPECT_THAT(Sizes("64M"), ElementsAre(67108864));
  EXPECT_THAT(Sizes("4,8,1M"), ElementsAre(4, 8, 1048576));
  EXPECT_THAT(Sizes("1K:8K"), ElementsAre(1024, 2048, 4096, 8192));
  EXPECT_THAT(Sizes("1,3,353,2k"), ElementsAre(1, 3, 353, 2048));
}

TEST(ParseSizes, RangeEndsWithItsEndEvenIfNotReachedByDoubling) {
  EXPECT_THAT(Sizes("1K:3K"), ElementsAre(1024, 2048, 3072));
  EXPECT_THAT(Sizes("5:5"), ElementsAre(5));
}

TEST(ParseSizes, RefusesWhatIsNoSize) {
  for (const char* text : {"", "0", "x", "4X", "-4", "4MM", "8:4", "4:", ":4", "4,,8", "1.5M",
                           "18446744073709551616", "2000000000000", "1100G"}) {
    const auto sizes = ParseSizes(text);
    ASSERT_FALSE(sizes) << text;
    EXPECT_EQ(sizes.error().code, ErrorCode::kInvalidArgument) << text;
  }
}

TEST(CountsOfSizes, WantsWholeElements) {
  EXPECT_THAT(*CountsOfSizes({4, 1024}, 4), ElementsAre(1, 256));
  EXPECT_FALSE(CountsOfSizes({4, 6}, 4));
}

}  // namespace
}  // namespace mlnet::lab
