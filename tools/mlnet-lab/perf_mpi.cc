// SPDX-License-Identifier: Apache-2.0
#include "perf_mpi.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>

#include "base/errno_error.h"

namespace mlnet::lab {
namespace {

/// Called as "script HOST COMMAND...", like ssh; the command is for a shell, as ssh's is.
constexpr const char* kRemoteShell = R"(#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
host=$1
shift
exec nsenter --net={prefix}"$host" unshare --uts sh -c 'hostname "$0" && exec sh -c "$1"' "$host" "$*"
)";

Result<void> Write(const std::string& file, const std::string& text, mode_t mode) {
  std::ofstream out(file, std::ios::trunc);
  out << text;
  out.close();
  if (!out || chmod(file.c_str(), mode) != 0) return tl::make_unexpected(ErrnoError("write " + file, errno));
  return {};
}

}  // namespace

Result<std::vector<std::string>> MpirunCommand(const Paths& paths, const Turn& turn,
                                               const std::string& program) {
  const std::string shell = turn.spec.dir + "/remote-shell", hostfile = turn.spec.dir + "/hosts";
  const std::string script = fmt::format(fmt::runtime(kRemoteShell), fmt::arg("prefix", paths.NetnsFile("")));
  if (auto ok = Write(shell, script, 0755); !ok) return tl::make_unexpected(ok.error());
  std::string hosts;
  for (const Host& host : turn.hosts)
    hosts += fmt::format("{} slots={}\n", host.name, turn.spec.ranks_per_host);
  if (auto ok = Write(hostfile, hosts, 0644); !ok) return tl::make_unexpected(ok.error());

  // Shared memory only among the ranks of one host, where the peer would use it in real life, too.
  const std::string btl = turn.spec.ranks_per_host > 1 ? "tcp,self,vader" : "tcp,self";
  std::vector<std::string> argv = {"mpirun",     "--allow-run-as-root",
                                   "-np",        std::to_string(turn.spec.world_size),
                                   "--hostfile", hostfile,
                                   "--map-by",   "slot",
                                   "--bind-to",  "none"};
  const std::pair<const char*, std::string> parameters[] = {
      {"plm_rsh_agent", shell},
      {"plm_rsh_no_tree_spawn", "1"},
      {"pml", "ob1"},
      {"btl", btl},
      {"btl_tcp_if_include", turn.spec.iface},
      {"oob_tcp_if_include", turn.spec.iface},
      {"orte_tmpdir_base", turn.spec.dir},
      {"coll_tuned_use_dynamic_rules", "1"},  // without it the rank program could not choose the algorithm
      // More ranks than cores: a spinning rank would take the core from the one it waits for.
      {"mpi_yield_when_idle", "1"},
  };
  for (const auto& [name, value] : parameters) argv.insert(argv.end(), {"--mca", name, value});
  argv.insert(argv.end(), {program, turn.spec.File()});
  return argv;
}

}  // namespace mlnet::lab
