#include "cli/config_file.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cli/numbers.h"

namespace rueda::cli {
namespace {

using launch::Tuning;
using Settings = std::map<std::string, std::string>;  // "params.cycle_time_ms" -> "3.5"

constexpr int kMaxJsonLevels = 16;  // two are enough for settings

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::string_view without_comment(std::string_view line) {
  for (size_t at = 0; (at = line.find('#', at)) != std::string_view::npos; ++at)
    if (at == 0 || line[at - 1] == ' ' || line[at - 1] == '\t') return line.substr(0, at);
  return line;
}

// The character that a backslash and this character stand for in double quotes; 0 = unknown.
char unescaped(char character) {
  switch (character) {
    case 't':
      return '\t';
    case 'n':
      return '\n';
    case '"':
    case '\\':
      return character;
    default:
      return 0;
  }
}

// text begins with the opening quote. Between single quotes, two single quotes stand for one.
Result<std::string> parse_quoted(std::string_view text) {
  const char quote = text.front();
  std::string value;
  for (size_t at = 1; at < text.size(); ++at) {
    const char next = at + 1 < text.size() ? text[at + 1] : '\0';
    if (quote == '"' && text[at] == '\\') {
      const char meant = unescaped(next);
      if (meant == 0)
        return Status(Code::kInvalidArgument, R"(has a backslash that is not followed by ", \, t or n)");
      value += meant;
      ++at;
    } else if (quote == '\'' && text[at] == quote && next == quote) {
      value += quote;
      ++at;
    } else if (text[at] == quote) {
      if (trim(without_comment(text.substr(at + 1))).empty()) return value;
      return Status(Code::kInvalidArgument, "has text after the closing quote");
    } else {
      value += text[at];
    }
  }
  return Status(Code::kInvalidArgument, "has no closing quote");
}

Result<std::string> parse_scalar(std::string_view text) {
  const std::string_view words = trim(text);
  if (!words.empty() && (words.front() == '"' || words.front() == '\'')) return parse_quoted(words);
  return std::string(trim(without_comment(text)));
}

Result<Settings> parse_yaml(std::string_view text, std::string_view path) {
  Settings settings;
  std::string section;
  int number = 0;
  while (!text.empty()) {
    const std::string_view raw = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), raw.size() + 1));
    ++number;
    const std::string_view words = trim(without_comment(raw));
    if (words.empty() || words == "---") continue;
    const size_t colon = raw.find(':');
    if (words.find(':') == std::string_view::npos)
      return Status(Code::kInvalidArgument,
                    fmt::format("line {} of {} is not \"key: value\": {}", number, path, words));
    const std::string key(trim(raw.substr(0, colon)));
    const Result<std::string> value = parse_scalar(raw.substr(colon + 1));
    if (!value.is_ok())
      return Status(Code::kInvalidArgument,
                    fmt::format("line {} of {} {}: {}", number, path, value.status().why, trim(raw)));
    const bool is_indented = raw.front() == ' ' || raw.front() == '\t';
    if (!is_indented) section = value.value().empty() ? key : "";
    if (value.value().empty()) continue;  // a section, or a key without a value, which keeps its default
    settings[is_indented && !section.empty() ? section + "." + key : key] = value.value();
  }
  return settings;
}

Result<Settings> parse_json(std::string_view text, std::string_view path) {
  bool is_too_deep = false;  // deeper levels are not built: destroying them would exhaust the stack
  const auto root = nlohmann::json::parse(
      text,
      [&](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
        is_too_deep |= depth > kMaxJsonLevels;
        return depth <= kMaxJsonLevels;
      },
      false);
  if (is_too_deep)
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} is nested more than {} levels deep; settings need two", path, kMaxJsonLevels));
  if (!root.is_object()) return Status(Code::kInvalidArgument, fmt::format("{} is not a JSON object", path));
  Settings settings;
  const auto put = [&](const std::string& name, const nlohmann::json& value) {
    if (!value.is_null()) settings[name] = value.is_string() ? value.get<std::string>() : value.dump();
  };
  for (const auto& [key, value] : root.items()) {
    if (!value.is_object()) {
      put(key, value);
      continue;
    }
    for (const auto& [inner, inner_value] : value.items()) put(fmt::format("{}.{}", key, inner), inner_value);
  }
  return settings;
}

template <class T>
bool read_number(std::string_view text, std::optional<T>& target) {
  const std::optional<T> value = number_of<T>(text);
  if (value) target = value;
  return value.has_value();
}

bool read(std::string_view text, std::optional<double>& target) { return read_number(text, target); }
bool read(std::string_view text, std::optional<int64_t>& target) { return read_number(text, target); }
bool read(std::string_view text, std::optional<std::string>& target) { return target = text, true; }
bool read(std::string_view text, std::optional<bool>& target) {
  for (const std::string_view yes : {"true", "True", "yes", "on", "1"})
    if (text == yes) return target = true, true;
  for (const std::string_view no : {"false", "False", "no", "off", "0"})
    if (text == no) return target = false, true;
  return false;
}

// Calls visit(name in the file, member of Tuning) for every setting.
template <class Visit>
void for_each_setting(Visit visit) {
  visit("params.fusion_threshold_mb", &Tuning::fusion_threshold_mb);
  visit("params.cycle_time_ms", &Tuning::cycle_time_ms);
  visit("params.cache_capacity", &Tuning::cache_capacity);
  visit("params.hierarchical_allreduce", &Tuning::hierarchical_allreduce);
  visit("params.hierarchical_allgather", &Tuning::hierarchical_allgather);
  visit("params.torus_allreduce", &Tuning::torus_allreduce);
  visit("autotune.enabled", &Tuning::autotune);
  visit("autotune.log_file", &Tuning::autotune_log_file);
  visit("autotune.warmup_samples", &Tuning::autotune_warmup_samples);
  visit("autotune.steps_per_sample", &Tuning::autotune_steps_per_sample);
  visit("autotune.bayes_opt_max_samples", &Tuning::autotune_bayes_opt_max_samples);
  visit("autotune.gaussian_process_noise", &Tuning::autotune_gaussian_process_noise);
  visit("timeline.filename", &Tuning::timeline_filename);
  visit("timeline.mark_cycles", &Tuning::timeline_mark_cycles);
  visit("stall_check.enabled", &Tuning::stall_check);
  visit("stall_check.warning_time_seconds", &Tuning::stall_warning_s);
  visit("stall_check.shutdown_time_seconds", &Tuning::stall_shutdown_s);
  visit("library_options.num_nccl_streams", &Tuning::num_nccl_streams);
  visit("library_options.thread_affinity", &Tuning::thread_affinity);
  visit("library_options.gloo_timeout_seconds", &Tuning::gloo_timeout_s);
  visit("logging.level", &Tuning::log_level);
  visit("logging.with_timestamp", &Tuning::log_with_timestamp);
  visit("metrics.port", &Tuning::metrics_port);
  visit("max_restarts", &Tuning::max_restarts);
}

}  // namespace

Result<ConfigFile> parse_config_file(std::string_view text, std::string_view path) {
  Result<Settings> settings = trim(text).starts_with('{') ? parse_json(text, path) : parse_yaml(text, path);
  if (!settings.is_ok()) return settings.status();
  Settings rest = std::move(settings.value());
  rest.erase("library_options.mpi_threads_disable");  // concerns MPI only
  ConfigFile file;
  if (const auto controller = rest.find("controller"); controller != rest.end()) {
    file.is_mpi = controller->second == "mpi";
    if (controller->second != "gloo" && !file.is_mpi)
      return Status(Code::kUnsupported,
                    fmt::format("controller: {} in {} is neither gloo nor mpi", controller->second, path));
    rest.erase(controller);
  }
  std::string bad;
  for_each_setting([&](const char* name, auto member) {
    const auto found = rest.find(name);
    if (found == rest.end()) return;
    if (!read(found->second, file.tuning.*member)) bad = fmt::format("{} = \"{}\"", name, found->second);
    rest.erase(found);
  });
  if (!bad.empty())
    return Status(Code::kInvalidArgument, fmt::format("{} in {} has the wrong type", bad, path));
  for (const auto& [name, value] : rest) file.unknown.push_back(name);
  return file;
}

void fill_gaps(Tuning& given, const Tuning& from_file) {
  for_each_setting([&](const char*, auto member) {
    if (!(given.*member)) given.*member = from_file.*member;
  });
}

}  // namespace rueda::cli
