// SPDX-License-Identifier: Apache-2.0
// mlnet-vm-rank: one rank as a user writes it, over the installed libmlnet. It sums a file of numbers over all ranks; what is
// right is not known here: vm_testbed makes the numbers and checks the sums.
//   mlnet-vm-rank JOB RANK WORLD_SIZE DTYPE CLASS IN OUT [STOP_FILE]
// With STOP_FILE it sums again and again, until that file exists on the host of any rank, and all sums must have the same bits.
// Prints "call N" after each sum, then one line of JSON.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "mlnet/communicator.h"

namespace {

using Bytes = std::vector<char>;

struct Options {
  mlnet::JoinOptions join;
  mlnet::DataType dtype = mlnet::DataType::kFloat32;
  mlnet::CallOptions call;
  std::string in, out, stop;
};

bool Parse(int argc, char** argv, Options& options) {
  if (argc != 8 && argc != 9) return false;
  options.join.job = argv[1];
  options.join.rank = std::atoi(argv[2]);
  options.join.world_size = std::atoi(argv[3]);
  options.join.timeout = std::chrono::seconds(120);  // an emulated processor is slow
  options.call.traffic_class = std::atoi(argv[5]);
  options.in = argv[6];
  options.out = argv[7];
  if (argc == 9) options.stop = argv[8];
  for (const auto dtype : {mlnet::DataType::kFloat32, mlnet::DataType::kFloat64, mlnet::DataType::kInt32, mlnet::DataType::kInt64}) {
    options.dtype = dtype;
    if (std::strcmp(mlnet::NameOf(dtype), argv[4]) == 0) return true;
  }
  return false;
}


/// Whether any rank wants to stop: the same answer on all of them.
mlnet::Result<bool> IsStopped(mlnet::Communicator& comm, const Options& options) {
  int32_t wants = options.stop.empty() || access(options.stop.c_str(), F_OK) == 0, wanting = 0;
  const auto sum = comm.AllReduce(&wants, &wanting, 1, mlnet::DataType::kInt32, mlnet::ReduceOp::kSum, options.call);
  if (auto ok = sum->Wait(); !ok) return tl::make_unexpected(ok.error());
  return wanting > 0;
}

mlnet::Result<void> Run(const Options& options) {
  std::ifstream file(options.in, std::ios::binary);
  const Bytes in((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto comm = mlnet::Communicator::Join(options.join);
  if (!comm) return tl::make_unexpected(comm.error());
  Bytes first, out(in.size());
  int calls = 0;
  for (bool is_over = false; !is_over;) {
    const auto sum = (*comm)->AllReduce(in.data(), out.data(), in.size() / mlnet::SizeOf(options.dtype), options.dtype, mlnet::ReduceOp::kSum, options.call);
    if (auto ok = sum->Wait(); !ok) return ok;
    std::printf("call %d\n", ++calls);
    std::fflush(stdout);
    if (first.empty()) first = out;
    if (out != first) return mlnet::Err(mlnet::ErrorCode::kSystem, "call " + std::to_string(calls) + " gave other bits than the first");
    const auto stopped = IsStopped(**comm, options);
    if (!stopped) return tl::make_unexpected(stopped.error());
    is_over = *stopped;
  }
  std::ofstream(options.out, std::ios::binary).write(out.data(), static_cast<std::streamsize>(out.size()));
  const mlnet::CommStats stats = (*comm)->Stats();
  std::printf("{\"calls\":%d,\"packets_sent\":%lu,\"retransmits\":%lu,\"summed_in_kernel\":%lu,\"summed_in_user_space\":%lu,\"rtt_us\":%lu}\n", calls,
              stats.packets_sent, stats.retransmits, stats.summed_in_kernel, stats.summed_in_user_space, stats.rtt_us);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: mlnet-vm-rank JOB RANK WORLD_SIZE float32|float64|int32|int64 CLASS IN OUT [STOP_FILE]\n");
    return 2;
  }
  const auto done = Run(options);
  if (!done) std::fprintf(stderr, "mlnet-vm-rank: %s\n", done.error().ToString().c_str());
  return done ? 0 : 1;
}
