#include "launch/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "rueda/base/limits.h"

namespace rueda::launch {
namespace {

constexpr std::string_view kBlank = " \t\r";

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::optional<int> parse_slots(std::string_view text) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (slots < 1 || slots > kMaxRanks) return std::nullopt;
  return slots;
}

// This also keeps names harmless: ssh would take a name that begins with '-' for an option.
bool is_host_name(std::string_view name) {
  if (name.empty() || name.front() == '-' || name.size() > 255) return false;
  return std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == '@' || c == ':' || c == '%';
  });
}

// "name", "name:2", "[v6]", "[v6]:2"
std::optional<HostSlots> parse_entry(std::string_view entry) {
  std::string_view name = entry;
  std::string_view rest;
  if (entry.starts_with('[')) {
    const size_t close = entry.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    name = entry.substr(1, close - 1);
    rest = entry.substr(close + 1);
  } else if (const size_t colon = entry.find(':'); colon != std::string_view::npos) {
    name = entry.substr(0, colon);
    rest = entry.substr(colon);
  }
  if (!is_host_name(name)) return std::nullopt;
  if (rest.empty()) return HostSlots{std::string(name), 1};
  if (!rest.starts_with(':')) return std::nullopt;
  const std::optional<int> slots = parse_slots(rest.substr(1));
  if (!slots) return std::nullopt;
  return HostSlots{std::string(name), *slots};
}

void add_host(std::vector<HostSlots>& hosts, HostSlots entry) {
  const auto same = std::ranges::find(hosts, entry.name, &HostSlots::name);
  if (same == hosts.end())
    hosts.push_back(std::move(entry));
  else
    same->slots += entry.slots;
}

std::optional<HostSlots> parse_hostfile_line(std::string_view line) {
  const size_t blank = line.find_first_of(kBlank);
  std::optional<HostSlots> entry = parse_entry(line.substr(0, blank));
  while (entry && blank != std::string_view::npos) {
    line = trim(line.substr(std::min(line.size(), line.find_first_of(kBlank))));
    if (line.empty()) break;
    const std::string_view word = line.substr(0, line.find_first_of(kBlank));
    if (word.starts_with("max_slots=") || word.starts_with("max-slots="))
      continue;  // OpenMPI's word; it has no meaning here
    if (!word.starts_with("slots=")) return std::nullopt;
    const std::optional<int> slots = parse_slots(word.substr(6));
    if (!slots) return std::nullopt;
    entry->slots = *slots;
    if (word.size() == line.size()) break;
  }
  return entry;
}

}  // namespace

Result<std::vector<HostSlots>> parse_hosts(std::string_view text) {
  std::vector<HostSlots> hosts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = trim(text.substr(begin, end - begin));
    std::optional<HostSlots> entry = parse_entry(word);
    if (!entry)
      return Status(Code::kInvalidArgument,
                    fmt::format("Invalid host input, please make sure it has format as : "
                                "worker-0:2,worker-1:2. (\"{}\" in \"{}\" is not a host with slots.)",
                                word, text));
    add_host(hosts, std::move(*entry));
    begin = end + 1;
  }
  return hosts;
}

Result<std::vector<HostSlots>> parse_hostfile(std::string_view text, std::string_view path) {
  std::vector<HostSlots> hosts;
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    std::optional<HostSlots> entry = parse_hostfile_line(line);
    if (!entry)
      return Status(Code::kInvalidArgument,
                    fmt::format("Invalid host input, line {} of {} is \"{}\"; write \"worker-0 slots=2\".",
                                number, path, line));
    add_host(hosts, std::move(*entry));
  }
  if (hosts.empty())
    return Status(Code::kInvalidArgument, fmt::format("Invalid host input, {} names no host.", path));
  return hosts;
}

Result<std::vector<Placement>> place_ranks(std::span<const HostSlots> hosts, int size) {
  if (size < 1 || size > kMaxRanks)
    return Status(Code::kInvalidArgument,
                  fmt::format("The number of processes must be between 1 and {}, not {}.", kMaxRanks, size));
  int64_t slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  if (size > slots)
    return Status(
        Code::kInvalidArgument,
        fmt::format("Requested more processes ({}) than there are available slots ({})", size, slots));
  std::vector<Placement> placements;
  std::vector<int> used(hosts.size(), 0);  // ranks per host
  for (size_t host = 0; host < hosts.size(); ++host)
    for (; used[host] < hosts[host].slots && std::ssize(placements) < size; ++used[host])
      placements.push_back({.rank = static_cast<Rank>(placements.size()),
                            .local_rank = used[host],
                            .host = static_cast<int>(host)});
  for (Placement& place : placements) {
    place.local_size = used[static_cast<size_t>(place.host)];
    place.cross_size = 0;
    for (int host = 0; host < std::ssize(used); ++host) {
      if (used[static_cast<size_t>(host)] <= place.local_rank) continue;
      if (host == place.host) place.cross_rank = place.cross_size;
      ++place.cross_size;
    }
  }
  return placements;
}

}  // namespace rueda::launch
