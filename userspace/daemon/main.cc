// SPDX-License-Identifier: Apache-2.0
// mlnetd: reads the configuration, starts the daemon, turns its end into an exit code.
//   0 ok   1 failed   2 usage or configuration   4 permission   5 not supported   6 conflict   7 timeout
#include <CLI/CLI.hpp>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>

#include "control/config.h"
#include "daemon/daemon.h"
#include "mlnet/job.h"

namespace {

using mlnet::Error;
using mlnet::ErrorCode;

constexpr int kExitUsage = 2;

int ExitCode(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return kExitUsage;
    case ErrorCode::kPermission: return 4;
    case ErrorCode::kUnsupported: return 5;
    case ErrorCode::kConflict: return 6;
    case ErrorCode::kTimeout: return 7;
    default: return 1;
  }
}

int Fail(const Error& error) {
  std::fprintf(stderr, "mlnetd: %s\n", error.message.c_str());
  if (!error.hint.empty()) std::fprintf(stderr, "  hint: %s\n", error.hint.c_str());
  return ExitCode(error.code);
}

// Of the prefix that this program is installed under, which may have been chosen after the build; /usr's is in /etc.
std::string DefaultConfigFile() {
  std::error_code error;
  const auto prefix = std::filesystem::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  const auto etc = error || prefix == "/usr" ? std::filesystem::path("/etc") : prefix / "etc";
  return etc / "mlnet" / "mlnetd.toml";
}

void SetUpLog(const mlnet::control::Config& config) {
  auto logger = spdlog::stderr_color_mt("mlnetd");
  logger->set_level(spdlog::level::from_str(config.log_level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ " + config.host + " %v");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"mlnetd: sums gradients in this host's kernel for the jobs of mlnet", "mlnetd"};
  std::string path = DefaultConfigFile();
  bool check_only = false;
  bool cleans = false;
  bool shows_layout = false;
  bool foreground = true;
  app.add_option("--config", path, "configuration file")->envname("MLNET_CONFIG")->capture_default_str();
  app.add_flag("--check-config", check_only, "check the configuration and exit");
  app.add_flag("--clean", cleans, "end the jobs of this host and remove what an mlnetd that does not run any more left in the kernel");
  app.add_flag("--map-layout", shows_layout, "print the version of the layout of its maps: jobs go on over an upgrade that keeps it");
  app.add_flag("--foreground", foreground, "stay in the foreground; it always does, the flag is for scripts");
  app.set_version_flag("--version", MLNET_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }
  if (shows_layout) {
    std::printf("%d\n", MLNET_ABI_VERSION);
    return 0;
  }
  const auto config = mlnet::control::LoadConfig(path);
  if (!config) {
    Fail(config.error());
    return kExitUsage;
  }
  if (check_only) {
    std::puts("OK");
    return 0;
  }
  SetUpLog(*config);
  if (cleans) {
    const auto cleaned = mlnet::daemon::CleanUp(*config);
    return cleaned ? 0 : Fail(cleaned.error());
  }
  auto daemon = mlnet::daemon::Daemon::Start(*config);
  if (!daemon) return Fail(daemon.error());
  try {
    const auto ended = (*daemon)->Run();
    if (ended && (*daemon)->leaves_jobs()) std::_Exit(0);  // as if it were killed: destructors take jobs out of the kernel
    return ended ? 0 : Fail(ended.error());
  } catch (const std::exception& e) {
    spdlog::critical("ended by a bug: {}", e.what());  // else nothing but a signal's number would tell
    throw;
  }
}
