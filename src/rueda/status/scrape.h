// What a scraper of metrics says and hears: as much of HTTP/1.1 as Prometheus needs. One request per
// connection. Pure.
// Source: RFC 9112 (messages), RFC 6750 (bearer tokens).
#pragma once

#include <string>
#include <string_view>

namespace rueda::status {

inline constexpr size_t kMaxHeadBytes = 8 << 10;  // of a request: its line and its fields
inline constexpr std::string_view kMetricsPath = "/metrics";

// Whether the empty line that ends a head has arrived.
bool has_whole_head(std::string_view arrived);

// The HTTP status for a head: 200 (the metrics are due), 400, 401, 404 or 405. Who does not show the token
// hears 401 whatever he asks for. The token is compared in a time that does not depend on where it differs.
int verdict_on(std::string_view head, std::string_view token);

// A whole response, after which the connection ends. body: of status 200; others have a sentence of their
// own.
std::string http_response(int status, std::string_view body = {});

}  // namespace rueda::status
