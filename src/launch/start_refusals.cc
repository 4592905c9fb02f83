#include "launch/start_refusals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "launch/start_progress.h"

namespace rueda::launch {
namespace {

constexpr size_t kAllNamed = 10, kFirstNamed = 3;
constexpr std::string_view kHidden = "…";

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_'; }

std::string without_name(std::string text, const std::string& host) {
  for (size_t at = 0; !host.empty() && (at = text.find(host, at)) != std::string::npos;) {
    const size_t end = at + host.size();
    const bool is_word =
        (at == 0 || !is_of_name(text[at - 1])) && (end == text.size() || !is_of_name(text[end]));
    if (is_word) text.replace(at, host.size(), kHidden);
    at += is_word ? kHidden.size() : host.size();
  }
  return text;
}

// Three dots between digits make an address.
std::string without_addresses(const std::string& text) {
  std::string kept;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_not_of("0123456789.", at), text.size());
    const std::string_view number = std::string_view(text).substr(at, end - at);
    if (std::ranges::count(number, '.') == 3 && number.back() != '.') {
      kept += kHidden;
      at = end;
    } else {
      const size_t next = std::max(end, at + 1);
      kept += text.substr(at, next - at);
      at = next;
    }
  }
  return kept;
}

std::string names_of(std::span<const std::string> names) {
  if (names.size() <= kAllNamed) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(names.first(kFirstNamed), ", "), names.size() - kFirstNamed);
}

}  // namespace

std::string without_host(const std::string& text, const std::string& host) {
  return without_addresses(without_name(text, host));
}

std::string list_refusals(std::span<const Refusal> refusals) {
  struct Group {
    std::string cause, sentence;
    std::vector<std::string> hosts;
  };
  std::vector<Group> groups;  // in the order of their first hosts
  for (const Refusal& one : refusals) {
    const std::string cause = one.before + std::string(kHidden) + without_host(one.after, one.host);
    auto group = std::ranges::find(groups, cause, &Group::cause);
    if (group == groups.end())
      group = groups.insert(groups.end(), {.cause = cause, .sentence = {}, .hosts = {}});
    group->hosts.push_back(one.host);
    group->sentence = one.before + one.host + one.after + one.aside;
  }
  std::vector<std::string> texts;
  for (const Group& group : groups)
    texts.push_back(group.hosts.size() == 1 ? group.sentence
                                            : fmt::format("{} hosts ({}): {}", group.hosts.size(),
                                                          names_of(group.hosts), group.cause));
  return shortened(texts, "; ");
}

}  // namespace rueda::launch
