// SPDX-License-Identifier: Apache-2.0
#include "base/read_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "unit/temp_folder.h"

namespace mlnet {
namespace {

using ::testing::HasSubstr;

TEST(read_file, gives_all_bytes_also_of_long_and_of_empty_files) {
  const test::TempFolder folder;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{100'001}}) {
    std::string text(size, 'x');
    if (size > 2) text[size / 2] = '\0';
    std::ofstream(folder / "f") << text;
    const auto read = ReadFile(folder / "f");
    ASSERT_TRUE(read) << size;
    EXPECT_EQ(*read, text) << size;
  }
}

TEST(read_file, what_cannot_be_read_is_an_error_that_names_it) {
  const test::TempFolder folder;
  const auto missing = ReadFile(folder / "no", "name another");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr(folder / "no: No such file"));
  EXPECT_EQ(missing.error().hint, "name another");
  // Opened, and then refused.
  const auto is_folder = ReadFile(folder / "");
  ASSERT_FALSE(is_folder);
  EXPECT_THAT(is_folder.error().message, HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace mlnet
