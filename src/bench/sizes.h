// Sizes, rates and lists as people write them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/status.h"

namespace rueda::bench {

// "4B", "64KiB", "1.5MiB", "2GB" (powers of ten), "100" (bytes). At least 1 byte, at most 64 GiB.
Result<int64_t> parse_bytes(std::string_view text);
// "1gbit", "500mbit", "10.5gbit", "250kbit" per second, in bits; at least 1 Mbit/s.
Result<int64_t> parse_rate(std::string_view text);
// The same, of a link that `tc` can make: at most 400 Gbit/s.
Result<int64_t> parse_link_rate(std::string_view text);
// Comma-separated, none empty.
Result<std::vector<std::string>> parse_words(std::string_view text);
Result<std::vector<int64_t>> parse_sizes(std::string_view text);
Result<std::vector<int>> parse_counts(std::string_view text, int least, int most);

// So many parameter servers, or with `ranks` so many for that many ranks.
struct ServerCount {
  int servers = 1, ranks = 1;  // ranks 0: `servers` are the number itself
  [[nodiscard]] int of(int all) const;
};
// "1:4,1:2,8": one server for four ranks, one for two, and eight. At most one for each rank.
Result<std::vector<ServerCount>> parse_servers(std::string_view text, int most);

std::string size_text(int64_t bytes);  // "64 KiB": the largest unit that divides it
std::string rate_text(int64_t bits_per_s);

}  // namespace rueda::bench
