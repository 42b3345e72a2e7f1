// SPDX-License-Identifier: Apache-2.0
// tools/uninstall: what an mlnetd has left in the kernel goes before its program does.
#include <filesystem>
#include <fstream>

#include "lab/daemon_fixture.h"

namespace mlnet::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Uninstall : public ::testing::Test {
 protected:
  // As `cmake --install` of a build folder leaves it: a program, its configuration, and the list of both.
  void Install(const std::string& host) {
    fs::create_directories(Prefix() / "sbin");
    fs::create_directories(Prefix() / "etc/mlnet");
    fs::copy_file(MLNETD_BINARY, Prefix() / "sbin/mlnetd");
    fs::copy_file(lab_.ConfigFile(host), Prefix() / "etc/mlnet/mlnetd.toml");
    fs::create_directories(lab_.Path("build"));
    std::ofstream(lab_.Path("build/install_manifest.txt")) << (Prefix() / "sbin/mlnetd").string() << "\n" << (Prefix() / "etc/mlnet/mlnetd.toml").string();
  }
  Ran Run(const std::string& host) const {
    return Shell("nsenter --net=/run/netns/" + lab_.Netns(host) + " " MLNET_SOURCE_DIR "/tools/uninstall " + lab_.Path("build"));
  }
  fs::path Prefix() const { return lab_.Path("usr"); }

  DaemonLab lab_{{"w1", "w2", "a1"}};
};

TEST_F(Uninstall, jobs_that_a_stopped_daemon_left_end_and_nothing_stays_in_the_kernel) {
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  auto ranks = lab_.Join("demo", {{"w1", 0}, {"w2", 1}});
  ASSERT_TRUE(ranks[0].ok) << ranks[0].error.ToString();
  Install("a1");
  lab_.Signal("a1", SIGTERM);
  ASSERT_TRUE(fs::exists(lab_.PinPath("a1"))) << "the job goes on without it";
  const Ran ran = Run("a1");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_FALSE(fs::exists(lab_.PinPath("a1")));
  EXPECT_FALSE(fs::exists(Prefix() / "sbin/mlnetd"));
  EXPECT_TRUE(fs::exists(Prefix() / "etc/mlnet/mlnetd.toml")) << "it was changed: " << ran.output;
  EXPECT_THAT(ranks[0].WaitPush("job_failed")["message"].get<std::string>(), HasSubstr("mlnetd on host a1 has stopped"));
}

TEST_F(Uninstall, a_daemon_that_runs_keeps_everything) {
  ASSERT_NO_FATAL_FAILURE(lab_.Start("a1"));
  Install("a1");
  const Ran ran = Run("a1");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.output, HasSubstr("another mlnetd runs as instance"));
  EXPECT_TRUE(fs::exists(Prefix() / "sbin/mlnetd"));
  EXPECT_TRUE(fs::exists(lab_.Path("build/install_manifest.txt")));
  EXPECT_EQ(lab_.Call("a1", "status")["state"], "ok");
}

}  // namespace
}  // namespace mlnet::test
