#include "rueda/base/config_rows.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <csignal>

#include "rueda/base/config_texts.h"
#include "rueda/base/socket.h"

namespace rueda {
namespace {

ConfigEntry make_entry(const Labels& labels, std::string_view type, std::string_view range) {
  ConfigEntry entry;
  entry.name = labels.name;
  entry.env = labels.env;
  entry.alias = labels.alias;
  entry.type = type;
  entry.unit = labels.unit;
  entry.range = range;
  entry.sentence = labels.sentence;
  return entry;
}

// Signals that mean nothing to rueda, and that a scheduler or a person can send.
constexpr std::array<std::pair<std::string_view, int>, 4> kSignals = {
    {{"hup", SIGHUP}, {"quit", SIGQUIT}, {"usr1", SIGUSR1}, {"usr2", SIGUSR2}}};

}  // namespace

std::string number_text(double value) {
  std::array<char, 64> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::string(text.data(), end) : std::string("?");
}

ConfigEntry integer(const Labels& labels, int64_t Config::*field, std::string_view range,
                    std::pair<int64_t, int64_t> bounds) {
  ConfigEntry entry = make_entry(labels, "integer", range);
  entry.parse = [field, bounds](Config& config, std::string_view text) -> Status {
    const auto value = number_in<int64_t>(text);
    if (!value) return refused("a whole number");
    if (*value < bounds.first || *value > bounds.second) return refused("a whole number in range");
    config.*field = *value;
    return Status::ok();
  };
  entry.print = [field](const Config& config) { return std::to_string(config.*field); };
  return entry;
}

ConfigEntry number(const Labels& labels, double Config::*field, std::string_view range,
                   std::pair<double, double> bounds) {
  ConfigEntry entry = make_entry(labels, "number", range);
  entry.parse = [field, bounds](Config& config, std::string_view text) -> Status {
    const auto value = number_in<double>(text);
    if (!value || !std::isfinite(*value)) return refused("a number");
    if (*value < bounds.first || *value > bounds.second) return refused("a number in range");
    config.*field = *value;
    return Status::ok();
  };
  entry.print = [field](const Config& config) { return number_text(config.*field); };
  return entry;
}

ConfigEntry boolean(const Labels& labels, bool Config::*field) {
  ConfigEntry entry = make_entry(labels, "boolean", "1/true/yes/on or 0/false/no/off");
  entry.parse = [field](Config& config, std::string_view text) -> Status {
    const Result<bool> value = parse_boolean(text);
    if (!value.is_ok()) return value.status();
    config.*field = value.value();
    return Status::ok();
  };
  entry.print = [field](const Config& config) { return config.*field ? "1" : "0"; };
  return entry;
}

ConfigEntry text(const Labels& labels, std::string Config::*field, std::string_view range) {
  ConfigEntry entry = make_entry(labels, "text", range);
  entry.parse = [field](Config& config, std::string_view value) -> Status {
    config.*field = value;
    return Status::ok();
  };
  entry.print = [field](const Config& config) { return config.*field; };
  return entry;
}

ConfigEntry flight_record_signal() {
  ConfigEntry entry =
      make_entry({"flight_record_signal", "RUEDA_FLIGHT_RECORD_SIGNAL", "", "",
                  "Signal at which a rank writes its flight record and goes on; empty: none."},
                 "text", "HUP|QUIT|USR1|USR2");
  entry.parse = [](Config& config, std::string_view text) -> Status {
    std::string name = lower(trimmed(text));
    if (name.starts_with("sig")) name = name.substr(3);
    const auto* const at = std::ranges::find(kSignals, name, &std::pair<std::string_view, int>::first);
    if (at == kSignals.end() && !name.empty()) return refused("one of the signals");
    config.flight_record_signal = name.empty() ? 0 : at->second;
    return Status::ok();
  };
  entry.print = [](const Config& config) {
    const auto* const at =
        std::ranges::find(kSignals, config.flight_record_signal, &std::pair<std::string_view, int>::second);
    return at == kSignals.end() ? std::string() : std::string(at->first);
  };
  return entry;
}

void add_metrics_port(std::vector<ConfigEntry>& table) {
  table.push_back(integer(
      {"metrics_port", "RUEDA_METRICS_PORT", "", "",
       "Local rank N of each host answers Prometheus on port N + this one, if it is shown the token; 0: none "
       "does."},
      &Config::metrics_port, "0..65535", {0, 65535}));
  table.push_back(text({"metrics_address", "RUEDA_METRICS_ADDRESS", "", "",
                        "Address at which the ports for metrics listen; 0.0.0.0 or ::, all of the host."},
                       &Config::metrics_address, "a numeric address"));
  table.back().parse = [](Config& config, std::string_view given) -> Status {
    if (!is_ip_literal(std::string(given))) return refused("a numeric address, such as 0.0.0.0 or ::");
    config.metrics_address = given;
    return Status::ok();
  };
  table.push_back(
      text({"metrics_token_file", "RUEDA_METRICS_TOKEN_FILE", "", "",
            "File into which ranks write the token of their ports for metrics; one that exists keeps its "
            "mode, and one that nobody may write gives them the token. Empty: metrics-PORT.token in the "
            "private folder."},
           &Config::metrics_token_file, "a path"));
}

void add_verdicts(std::vector<ConfigEntry>& table) {
  table.push_back(
      number({"verdict_s", "RUEDA_VERDICT_SECONDS", "", "seconds",
              "A rank is reported for which others have waited for so long, or which has not answered "
              "for so long; training goes on."},
             &Config::verdict_s, "0.1..100000000", {0.1, kMaxSeconds}));
  table.push_back(
      boolean({"check_numbers", "RUEDA_CHECK_NUMBERS", "", "",
               "The rank is named that first submits NaN or infinity in host memory; reads each tensor "
               "once more."},
              &Config::check_numbers));
}

}  // namespace rueda
