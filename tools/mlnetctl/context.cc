// SPDX-License-Identifier: Apache-2.0
#include "mlnetctl/context.h"

#include <fmt/format.h>

namespace mlnet::ctl {

Result<Json> Context::Call(const std::string& method, const Json& params) {
  using std::chrono::milliseconds;
  if (!client_) {
    auto client = rpc::Client::Connect(options.socket);
    if (!client) {
      is_reachable_ = false;
      return tl::make_unexpected(client.error());
    }
    is_reachable_ = true;
    client_.emplace(std::move(*client));
    Detail(fmt::format("connected to {}", options.socket));
  }
  Detail(fmt::format("-> {} {}", method, rpc::Dump(params)));
  const auto start = std::chrono::steady_clock::now();
  auto result = client_->Call(method, params, milliseconds(static_cast<int64_t>(options.timeout_s * 1000)));
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  Detail(fmt::format("<- {} after {:.1f} ms",
                     result ? Text(*result, "schema") : ErrorCodeName(result.error().code), took.count()));
  // "Unavailable" may be the daemon's answer (no aggregator, say), or mean that it has gone.
  if (!result && result.error().code == ErrorCode::kUnavailable && !client_->NextPush())
    is_reachable_ = false;
  return result;
}

void Context::PrintJson(const Json& value) {
  // Invalid UTF-8 (an interface may have any name) is replaced: a consumer always gets valid JSON.
  out_ << value.dump(options.pretty ? 2 : -1, ' ', false, Json::error_handler_t::replace) << "\n";
  out_.flush();
}

void Context::Say(const std::string& text) {
  if (!options.quiet && !options.json) err_ << text << "\n";
}

void Context::Detail(const std::string& text) {
  if (options.verbose > 0) err_ << Paint(text, Tone::kDim, options.use_color) << "\n";
}

int Context::Fail(const Error& error) {
  PrintError(err_, options, ErrorCodeName(error.code), error.message, error.hint);
  if (!is_reachable_ && error.code == ErrorCode::kUnavailable) return kExitUnreachable;
  return ExitCodeOf(error.code);
}

void PrintError(std::ostream& err, const GlobalOptions& options, const std::string& code,
                const std::string& message, const std::string& hint) {
  if (options.json) {
    const Json body = {{"error", {{"code", code}, {"message", message}, {"hint", hint}}}};
    err << body.dump(options.pretty ? 2 : -1, ' ', false, Json::error_handler_t::replace) << "\n";
    return;
  }
  err << "mlnetctl: " << Paint(code, Tone::kBad, options.use_color) << ": " << message << "\n";
  if (!hint.empty()) err << "  try: " << hint << "\n";
}

}  // namespace mlnet::ctl
