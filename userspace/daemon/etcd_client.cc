// SPDX-License-Identifier: Apache-2.0
#include "daemon/etcd_client.h"

#include <algorithm>

#include "base/read_file.h"
#include "rpc/message.h"

namespace mlnet::daemon::etcd {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// gRPC's status codes, as the gateway passes them on.
enum Status { kInvalid = 3, kDeadline = 4, kNotFound = 5, kDenied = 7, kExhausted = 8, kUnavailable = 14, kUnauthenticated = 16 };

bool IsTls(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_CERTPROBLEM ||
         code == CURLE_SSL_CONNECT_ERROR;
}

// What etcd refused. kTimeout is for this file only: the token is to be renewed.
Error Refusal(const std::string& endpoint, long http, const std::string& answer) {
  const Json body = rpc::ParseJson(answer).value_or(Json());
  const auto error = rpc::Get<std::string>(body, "error");
  const bool is_etcd = error.has_value();
  const int status = is_etcd ? rpc::GetOr<int>(body, "code", 0).value_or(0) : 0;
  const std::string why = is_etcd ? *error : "HTTP " + std::to_string(http);
  const std::string message = "store at " + endpoint + ": " + why;
  const bool is_token_old = status == kUnauthenticated || why.find("auth store is old") != std::string::npos;
  if (is_token_old) return {ErrorCode::kTimeout, message, ""};
  // Exhausted: its quota is full, and it takes no heartbeats either.
  if (status == kUnavailable || status == kDeadline || status == kExhausted || (!is_etcd && http >= 500)) {
    return {ErrorCode::kUnavailable, endpoint + ": " + why, ""};
  }
  if (status == kNotFound) return {ErrorCode::kConflict, message, ""};
  if (status == kDenied || (status == kInvalid && (why.find("user") != std::string::npos || why.find("authentication") != std::string::npos))) {
    return {ErrorCode::kPermission, message, "check user and password_file in [store], and the user's role in etcd"};
  }
  return {ErrorCode::kProtocol, message, is_etcd ? "see etcd's log" : "is this etcd 3.4 or later?"};
}

}  // namespace

size_t AppendTo(char* bytes, size_t size, size_t count, void* out) {
  static_cast<std::string*>(out)->append(bytes, size * count);
  return size * count;
}

Result<Options> Options::Read(const control::EtcdConfig& config) {
  static const CURLcode kGlobal = curl_global_init(CURL_GLOBAL_DEFAULT);  // once, before any thread of ours
  if (kGlobal != CURLE_OK) return Err(ErrorCode::kSystem, std::string("libcurl: ") + curl_easy_strerror(kGlobal));
  Options options{config, ""};
  for (const std::string& file : {config.ca, config.cert, config.key, config.password_file}) {
    if (file.empty()) continue;
    const auto text = ReadFile(file, "check the files named in [store]");
    if (!text) return tl::make_unexpected(Error{text.error().code, "store: " + text.error().message, text.error().hint});
    if (file == config.password_file) options.password = text->substr(0, text->find('\n'));
  }
  return options;
}

Client::Client(Options options) : options_(std::move(options)) {}

int Client::OnProgress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Client*>(self)->IsStopping() ? 1 : 0;
}

void Client::Prepare(Transfer& transfer, const std::string& path, const Json& body) {
  CURL* easy = transfer.easy.get();
  curl_easy_reset(easy);
  transfer.body = rpc::Dump(body);
  transfer.headers.reset(curl_slist_append(nullptr, "Content-Type: application/json"));
  if (!token_.empty()) curl_slist_append(transfer.headers.get(), ("Authorization: " + token_).c_str());
  curl_easy_setopt(easy, CURLOPT_URL, (endpoint() + "/v3/" + path).c_str());
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer.headers.get());
  curl_easy_setopt(easy, CURLOPT_POSTFIELDS, transfer.body.c_str());
  curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(transfer.body.size()));
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_PROXY, "");  // the cluster's own network, whatever http_proxy says
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(kConnectTimeout.count()));
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, &Client::OnProgress);
  curl_easy_setopt(easy, CURLOPT_XFERINFODATA, this);
  const control::EtcdConfig& config = options_.config;
  if (!config.ca.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, config.ca.c_str());
  if (config.cert.empty()) return;
  curl_easy_setopt(easy, CURLOPT_SSLCERT, config.cert.c_str());
  curl_easy_setopt(easy, CURLOPT_SSLKEY, config.key.c_str());
}

Result<Json> Client::Perform(const std::string& path, const Json& body, milliseconds timeout) {
  Prepare(transfer_, path, body);
  CURL* easy = transfer_.easy.get();
  std::string answer;
  char detail[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &AppendTo);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &answer);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, detail);
  const CURLcode code = curl_easy_perform(easy);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, nullptr);
  if (code != CURLE_OK) {
    // The details name milliseconds, and an outage must read the same each time; of TLS only they say what is wrong.
    const std::string why = IsTls(code) && detail[0] != '\0' ? detail : curl_easy_strerror(code);
    return Err(ErrorCode::kUnavailable, endpoint() + ": " + why);
  }
  long http = 0;
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &http);
  if (http != 200) return tl::make_unexpected(Refusal(endpoint(), http, answer));
  auto parsed = rpc::ParseJson(answer);
  if (!parsed || !parsed->is_object()) return Err(ErrorCode::kUnavailable, endpoint() + ": an answer that is no JSON");
  return parsed;
}

Result<void> Client::Authenticate(milliseconds timeout) {
  auto answer = Perform("auth/authenticate", {{"name", options_.config.user}, {"password", options_.password}}, timeout);
  if (!answer) return tl::make_unexpected(answer.error());
  token_ = Text(*answer, "token");
  return {};
}

Result<Json> Client::Try(const std::string& path, const Json& body, milliseconds timeout) {
  // A token expires when it was not used for minutes, and goes with the member that gave it.
  for (const bool is_last : {false, true}) {
    if (token_.empty() && !options_.config.user.empty()) {
      if (auto ok = Authenticate(timeout); !ok) return tl::make_unexpected(ok.error());
    }
    auto answer = Perform(path, body, timeout);
    if (answer || answer.error().code != ErrorCode::kTimeout) return answer;
    token_.clear();
    if (is_last) return Err(ErrorCode::kPermission, answer.error().message, "check user and password_file in [store]");
  }
  return Err(ErrorCode::kPermission, "store: no token");
}

Result<Json> Client::Call(const std::string& path, const Json& body, milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  std::string problems;
  for (size_t tried = 0; tried < options_.config.endpoints.size(); ++tried) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
    if (left <= milliseconds{0} || IsStopping()) break;
    auto answer = Try(path, body, std::min(left, kTryTimeout));
    if (answer || !IsOutage(answer.error())) return answer;
    problems += (problems.empty() ? "" : "; ") + answer.error().message;
    preferred_ = (preferred_ + 1) % options_.config.endpoints.size();
  }
  return Err(ErrorCode::kUnavailable, problems, "check etcd there, and [store] in mlnetd.toml");
}

}  // namespace mlnet::daemon::etcd
