// SPDX-License-Identifier: Apache-2.0
#include "datapath/load_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "refused.skel.h"

namespace mlnet::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Error Load() {
  datapath::BeginLoad();
  refused* object = refused::open_and_load();
  const int err = errno;
  if (object == nullptr) return datapath::LoadError("load the test's program", err);
  refused::destroy(object);
  return Error{};
}

TEST(LoadError, a_refused_program_is_told_by_the_verifiers_words) {
  const Error error = Load();
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, AllOf(HasSubstr("load the test's program"), HasSubstr("invalid access to packet"), Not(HasSubstr("processed "))));
  EXPECT_THAT(error.hint, AllOf(HasSubstr("kernel 6.1"), Not(HasSubstr("root"))));
}

TEST(LoadError, what_the_verifier_did_not_see_is_told_by_the_capabilities) {
  EXPECT_EXIT(
      {
        if (::setuid(65534) != 0) ::_exit(2);
        const Error error = Load();
        std::fputs((error.message + "; " + error.hint).c_str(), stderr);
        ::_exit(error.code == ErrorCode::kPermission ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON");
}

}  // namespace
}  // namespace mlnet::test
