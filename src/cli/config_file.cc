#include "cli/config_file.h"

#include <fmt/format.h>

#include <yaml.h>

#include <map>
#include <set>

#include "rueda/base/numbers.h"

namespace rueda::cli {
namespace {

using launch::Tuning;

struct Value {
  std::string text;
  bool is_scalar = true;
};
using Settings = std::map<std::string, Value>;  // "params.cycle_time_ms" -> "3.5"

constexpr size_t kMaxLevels = 16;  // two are enough for settings

Status refusal(std::string why) { return {Code::kInvalidArgument, std::move(why)}; }

// Empty beyond the last line.
std::string_view line_of(std::string_view text, size_t number) {
  for (; number > 0; --number) {
    const size_t end = text.find('\n');
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return text.substr(0, text.find('\n'));
}

// A file as libyaml reads it: all of YAML 1.1, which contains JSON. Event by event, so that a file that is
// nested without end is refused early.
class SettingsReader {
 public:
  SettingsReader(std::string_view text, std::string_view path) : text_(text), path_(path) {
    yaml_parser_initialize(&parser_);  // it fails only without memory, and so does the first event then
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  SettingsReader(const SettingsReader&) = delete;
  ~SettingsReader() { yaml_parser_delete(&parser_); }

  Result<Settings> run() {
    for (bool is_over = false; !is_over;) {
      yaml_event_t event;
      if (yaml_parser_parse(&parser_, &event) == 0) return what_is_wrong();
      is_over = event.type == YAML_STREAM_END_EVENT;
      const Status status = take(event);
      yaml_event_delete(&event);
      if (!status.is_ok()) return status;
    }
    return std::move(settings_);
  }

 private:
  static constexpr std::string_view kNoMapping = "is not \"key: value\"";
  struct Level {
    std::string prefix = {};              // of the names in it: "", "params."
    std::optional<std::string> key = {};  // whose value comes next
    std::set<std::string> keys = {};
    bool is_list = false;
  };

  Status take(const yaml_event_t& event) {
    switch (event.type) {
      case YAML_SCALAR_EVENT:
        return put_scalar(event);
      case YAML_ALIAS_EVENT:
        return put({.text = "an alias", .is_scalar = false}, false, event.start_mark.line);
      case YAML_DOCUMENT_START_EVENT:
        if (has_document_)
          return about_line(event.start_mark.line, "begins a second document, but one is read");
        has_document_ = true;
        break;
      case YAML_MAPPING_START_EVENT:
      case YAML_SEQUENCE_START_EVENT:
        return open(event);
      case YAML_MAPPING_END_EVENT:
      case YAML_SEQUENCE_END_EVENT:
        levels_.pop_back();
        break;
      default:
        break;
    }
    return Status::ok();
  }

  Status put_scalar(const yaml_event_t& event) {
    const auto& scalar = event.data.scalar;
    std::string text(reinterpret_cast<const char*>(scalar.value), scalar.length);
    const bool is_plain = scalar.style == YAML_PLAIN_SCALAR_STYLE;
    const bool is_null = text.empty() || (is_plain && (text == "null" || text == "~"));
    if (levels_.empty() && !is_null) return about_line(event.start_mark.line, kNoMapping);
    return put({.text = std::move(text)}, is_null, event.start_mark.line);
  }

  // A key, or its value. A key without a value keeps its default.
  Status put(Value value, bool is_null, size_t line) {
    if (levels_.empty() || levels_.back().is_list) return Status::ok();
    Level& level = levels_.back();
    if (!level.key) {
      if (!level.keys.insert(value.text).second) return about_line(line, "gives a key a second time");
      level.key = std::move(value.text);
      return Status::ok();
    }
    if (!is_null) settings_[level.prefix + *level.key] = std::move(value);
    level.key.reset();
    return Status::ok();
  }

  Status open(const yaml_event_t& event) {
    Level level{.is_list = event.type == YAML_SEQUENCE_START_EVENT};
    if (levels_.empty() && level.is_list) return about_line(event.start_mark.line, kNoMapping);
    if (levels_.size() == kMaxLevels)
      return refusal(
          fmt::format("{} is nested more than {} levels deep; settings need two", path_, kMaxLevels));
    if (!levels_.empty()) level.prefix = levels_.back().prefix;
    if (!levels_.empty() && levels_.back().key) level.prefix += *levels_.back().key + ".";
    const Status status = put({.text = level.is_list ? "a list" : "a mapping", .is_scalar = false},
                              !level.is_list, event.start_mark.line);
    levels_.push_back(std::move(level));
    return status;
  }

  [[nodiscard]] Status about_line(size_t line, std::string_view what) const {
    std::string_view raw = line_of(text_, line);
    raw.remove_prefix(std::min(raw.find_first_not_of(" \t\r"), raw.size()));
    std::string sentence = fmt::format("line {} of {} {}", line + 1, path_, what);
    if (!raw.empty()) sentence += fmt::format(": {}", raw.substr(0, 80));  // it may be beyond the last
    return refusal(std::move(sentence));
  }

  // libyaml's words for common mistakes, in ours.
  [[nodiscard]] Status what_is_wrong() const {
    const std::string_view problem = parser_.problem == nullptr ? "no memory is left" : parser_.problem;
    const std::string_view context = parser_.context == nullptr ? "" : parser_.context;
    const yaml_mark_t at = parser_.problem_mark, began = parser_.context_mark;
    if (problem == "found unexpected end of stream" && context == "while scanning a quoted scalar")
      return about_line(began.line, "has no closing quote");
    if (problem == "found unknown escape character")
      return about_line(
          at.line, R"(has a backslash before a letter that YAML gives no meaning there; \\ is a backslash)");
    if (problem == "could not find expected ':'") return about_line(began.line, kNoMapping);
    const std::string_view before = line_of(text_, at.line).substr(0, at.column);
    if (problem == "did not find expected key" && before.find_first_of("\"'") != std::string_view::npos)
      return about_line(at.line, "has text after the closing quote");
    return about_line(at.line, fmt::format("is neither YAML nor JSON ({})", problem));
  }

  std::string_view text_, path_;
  yaml_parser_t parser_{};
  std::vector<Level> levels_;
  bool has_document_ = false;
  Settings settings_;
};

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
  visit("start_timeout", &Tuning::start_timeout_s);
  visit("network_interfaces", &Tuning::network_interface);
  visit("max_restarts", &Tuning::max_restarts);
  visit("restart_pause", &Tuning::restart_pause_s);
  visit("grace", &Tuning::grace_s);
  visit("agent_timeout", &Tuning::agent_timeout_s);
  visit("bind_cores", &Tuning::bind_cores);
}

}  // namespace

Result<ConfigFile> parse_config_file(std::string_view text, std::string_view path) {
  Result<Settings> settings = SettingsReader(text, path).run();
  if (!settings.is_ok()) return settings.status();
  Settings rest = std::move(settings.value());
  rest.erase("library_options.mpi_threads_disable");  // concerns MPI only
  ConfigFile file;
  if (const auto controller = rest.find("controller"); controller != rest.end()) {
    const std::string& name = controller->second.text;
    file.is_mpi = name == "mpi";
    if (name != "gloo" && !file.is_mpi)
      return Status(Code::kUnsupported,
                    fmt::format("controller: {} in {} is neither gloo nor mpi", name, path));
    rest.erase(controller);
  }
  std::string bad;
  for_each_setting([&](const char* name, auto member) {
    const auto found = rest.find(name);
    if (found == rest.end()) return;
    const Value& value = found->second;
    if (!value.is_scalar || !read(value.text, file.tuning.*member))
      bad = fmt::format("{} = \"{}\"", name, value.text);
    rest.erase(found);
  });
  if (!bad.empty()) return refusal(fmt::format("{} in {} has the wrong type", bad, path));
  for (const auto& [name, value] : rest) file.unknown.push_back(name);
  return file;
}

void fill_gaps(Tuning& given, const Tuning& from_file) {
  for_each_setting([&](const char*, auto member) {
    if (!(given.*member)) given.*member = from_file.*member;
  });
}

}  // namespace rueda::cli
