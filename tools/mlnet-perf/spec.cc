// SPDX-License-Identifier: Apache-2.0
#include "mlnet-perf/spec.h"

#include <fstream>

#include "base/errno_error.h"
#include "base/read_file.h"
#include "mlnet-perf/element_type.h"
#include "mlnet-perf/names.h"

namespace mlnet::perf {
namespace {

Result<void> Save(const std::string& file, const Json& value) {
  std::ofstream out(file, std::ios::trunc);
  out << value.dump() << "\n";
  out.close();
  if (!out) return tl::make_unexpected(ErrnoError("write " + file, errno));
  return {};
}

Result<Json> Load(const std::string& file) {
  const auto text = ReadFile(file);
  if (!text) return tl::make_unexpected(text.error());
  Json value = Json::parse(*text, nullptr, false);
  if (!value.is_object()) return Err(ErrorCode::kProtocol, file + " is not a JSON object");
  return value;
}

}  // namespace

JoinOptions JoinOptionsOf(const Spec& spec, int rank) {
  JoinOptions options;
  options.job = spec.job;
  options.rank = rank;
  options.world_size = spec.world_size;
  options.timeout = std::chrono::seconds(spec.timeout_s);
  return options;
}

Result<void> SaveSpec(const Spec& spec) {
  return Save(spec.File(), {{"dir", spec.dir},
                            {"world_size", spec.world_size},
                            {"ranks_per_host", spec.ranks_per_host},
                            {"dtype", TypeOf(spec.dtype).name},
                            {"op", OpName(spec.op)},
                            {"wire", WireName(spec.wire)},
                            {"keeps_small", spec.keeps_small},
                            {"small_bytes", spec.small_bytes},
                            {"travels_as_half", spec.travels_as_half},
                            {"counts", spec.counts},
                            {"iterations", spec.iterations},
                            {"warmup", spec.warmup},
                            {"algorithm", spec.algorithm},
                            {"check_all", spec.check_all},
                            {"seed", spec.seed},
                            {"timeout_s", spec.timeout_s},
                            {"job", spec.job},
                            {"iface", spec.iface}});
}

Result<Spec> LoadSpec(const std::string& file) {
  const auto json = Load(file);
  if (!json) return tl::make_unexpected(json.error());
  Spec spec;
  try {  // the JSON library throws; this file is the only place that hears of it
    spec.dir = json->at("dir");
    spec.world_size = json->at("world_size");
    spec.ranks_per_host = json->at("ranks_per_host");
    const auto* type = FindType(json->at("dtype"));
    const auto op = FindOp(json->at("op"));
    const auto wire = FindWire(json->at("wire"));
    if (type == nullptr || !op || !wire) {
      return Err(ErrorCode::kProtocol, file + " names an unknown dtype, op or wire");
    }
    spec.dtype = type->dtype;
    spec.op = *op;
    spec.wire = *wire;
    spec.keeps_small = json->at("keeps_small");
    spec.small_bytes = json->at("small_bytes");
    spec.travels_as_half = json->at("travels_as_half");
    spec.algorithm = json->at("algorithm");
    spec.counts = json->at("counts").get<std::vector<uint64_t>>();
    spec.iterations = json->at("iterations");
    spec.warmup = json->at("warmup");
    spec.check_all = json->at("check_all");
    spec.seed = json->at("seed");
    spec.timeout_s = json->at("timeout_s");
    spec.job = json->at("job");
    spec.iface = json->at("iface");
  } catch (const Json::exception& error) {
    return Err(ErrorCode::kProtocol, file + ": " + error.what());
  }
  return spec;
}

Result<void> SaveRows(const std::string& file, const Result<std::vector<RankRow>>& rows) {
  if (!rows) {
    const Error& error = rows.error();
    return Save(
        file,
        {{"error", {{"code", ErrorCodeName(error.code)}, {"message", error.message}, {"hint", error.hint}}}});
  }
  Json list = Json::array();
  for (const RankRow& row : *rows) {
    list.push_back({{"count", row.count},
                    {"variant", row.variant},
                    {"times_ns", row.times_ns},
                    {"wrong", row.wrong},
                    {"checked", row.checked},
                    {"summed_in_kernel", row.summed_in_kernel},
                    {"summed_in_user_space", row.summed_in_user_space},
                    {"retransmits", row.retransmits},
                    {"cpu_ns", {row.cpu.user_ns, row.cpu.system_ns, row.cpu.busy_ns, row.cpu.softirq_ns}},
                    {"memory_bytes", row.memory_bytes}});
  }
  return Save(file, {{"rows", list}});
}

Result<std::vector<RankRow>> LoadRows(const std::string& file) {
  const auto json = Load(file);
  if (!json) return tl::make_unexpected(json.error());
  try {
    if (json->contains("error")) {
      const Json& body = json->at("error");
      const auto code = ErrorCodeFromName(body.at("code").get<std::string>());
      return Err(code.value_or(ErrorCode::kSystem), body.at("message"), body.at("hint"));
    }
    std::vector<RankRow> rows;
    for (const Json& row : json->at("rows")) {
      const Json& cpu = row.at("cpu_ns");
      rows.push_back({row.at("count"), row.at("variant"), row.at("times_ns").get<std::vector<uint64_t>>(),
                      row.at("wrong"), row.at("checked"), row.at("summed_in_kernel"),
                      row.at("summed_in_user_space"), row.at("retransmits"),
                      {cpu.at(0), cpu.at(1), cpu.at(2), cpu.at(3)}, row.at("memory_bytes")});
    }
    return rows;
  } catch (const Json::exception& error) {
    return Err(ErrorCode::kProtocol, file + ": " + error.what());
  }
}

}  // namespace mlnet::perf
