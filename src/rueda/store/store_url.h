// RUEDA_STORE: file:///directory or tcp://host:port.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "rueda/base/status.h"

namespace rueda::store {

struct StoreUrl {
  bool is_file = false;
  std::string dir;
  std::string host;  // without the brackets of IPv6
  int port = 0;
};

// From 1 to 65535, digits only.
inline std::optional<int> parse_port(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

inline Result<StoreUrl> parse_store_url(std::string_view text) {
  const Status bad(
      Code::kInvalidArgument,
      "RUEDA_STORE='" + std::string(text) + "' is refused: it must be file:///directory or tcp://host:port");
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
  std::string_view host = rest.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::optional<int> port = parse_port(rest.substr(colon + 1));
  if (host.empty() || !port) return bad;
  url.host = host;
  url.port = *port;
  return url;
}

}  // namespace rueda::store
