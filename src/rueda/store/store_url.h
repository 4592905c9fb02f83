// RUEDA_STORE: file:///directory or tcp://host:port.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

#include "rueda/base/status.h"

namespace rueda::store {

struct StoreUrl {
  bool is_file = false;
  std::string dir;
  std::string host;  // without brackets
  int port = 0;
};

inline Result<StoreUrl> parse_store_url(std::string_view text) {
  const Status bad(
      Code::kInvalidArgument,
      "RUEDA_STORE='" + std::string(text) + "' is refused: allowed is file:///directory or tcp://host:port");
  constexpr std::string_view kFile = "file://", kTcp = "tcp://";
  StoreUrl url;
  if (text.starts_with(kFile)) {
    url.is_file = true;
    url.dir = text.substr(kFile.size());
    while (url.dir.size() > 1 && url.dir.back() == '/') url.dir.pop_back();
    if (url.dir.size() < 2 || url.dir.front() != '/') return bad;
    return url;
  }
  if (!text.starts_with(kTcp)) return bad;
  const std::string_view rest = text.substr(kTcp.size());
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return bad;
  std::string_view host = rest.substr(0, colon), port = rest.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
  if (host.empty() || port.empty() || error != std::errc() || end != port.data() + port.size() ||
      url.port < 1 || url.port > 65'535)
    return bad;
  url.host = host;
  return url;
}

}  // namespace rueda::store
