#include "rueda/status/metrics.h"

#include <array>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "rueda/base/types.h"

namespace rueda::status {
namespace {

double seconds(Nanos duration) { return static_cast<double>(duration) / static_cast<double>(kSecond); }

std::string number(double value, bool is_fixed = false) {
  std::array<char, 64> text{};
  const auto format = is_fixed ? std::chars_format::fixed : std::chars_format::general;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value, format);
  return error == std::errc() ? std::string(text.data(), end) : "NaN";
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

Family one(std::string name, std::string help, std::string type, double value) {
  return {std::move(name), std::move(help), std::move(type), {{.suffix = "", .labels = {}, .value = value}}};
}

Family by_collective(std::string name, std::string help, const std::array<Count, kCollectives>& counts) {
  Family family{std::move(name), std::move(help), "counter", {}};
  for (size_t i = 0; i < kCollectives; ++i) {
    const std::string what = lower(name_of(static_cast<Collective>(i)));
    family.samples.push_back({"", {{"collective", what}}, static_cast<double>(counts[i].load())});
  }
  return family;
}

Family histogram(std::string name, std::string help, const Histogram& values) {
  Family family{std::move(name), std::move(help), "histogram", {}};
  int64_t below = 0;
  for (size_t i = 0; i < kBounds; ++i) {
    below += values.count_in(i);
    family.samples.push_back(
        {"_bucket", {{"le", number(seconds(bound_of(i)), true)}}, static_cast<double>(below)});
  }
  const auto all = static_cast<double>(below + values.count_in(kBounds));
  family.samples.push_back({"_bucket", {{"le", "+Inf"}}, all});
  family.samples.push_back({"_sum", {}, seconds(values.sum())});
  family.samples.push_back({"_count", {}, all});
  return family;
}

Family waiting(const Meters& meters) {
  Family family{
      "rueda_waiting_seconds_total",
      "Time spent waiting, by cause. Calls overlap, so ranks and queue may exceed the time that passed.",
      "counter",
      {}};
  const auto add = [&](const char* cause, const Count& count) {
    family.samples.push_back({"", {{"cause", cause}}, seconds(count.load())});
  };
  add("ranks", meters.others_ns);
  add("queue", meters.queued_ns);
  add("operation", meters.blocked_ns);
  add("input", meters.input_ns);
  return family;
}

// The label `rank` is the rank that tells this.
Family late_ranks(const Meters& meters) {
  Family family{"rueda_late_seconds_total",
                "Time for which most other ranks waited for a rank, by that rank, or \"other\"; on rank 0.",
                "counter",
                {}};
  const auto add = [&](std::string rank, const Count& waited) {
    family.samples.push_back({"", {{"late_rank", std::move(rank)}}, seconds(waited.load())});
  };
  for (const Meters::Late& late : meters.late_ranks)
    if (const Rank rank = late.rank.load(); rank >= 0) add(std::to_string(rank), late.waited_ns);
  add("other", meters.other_late_ns);
  return family;
}

std::string escaped(const std::string& text, bool is_label) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '\n')
      out += "\\n";
    else if (c == '"' && is_label)
      out += "\\\"";
    else
      out += c;
  }
  return out;
}

}  // namespace

std::vector<Family> families_of(const Meters& meters, const Gauges& gauges) {
  std::vector<Family> out;
  out.push_back(by_collective("rueda_calls_total", "Collectives that have ended; fused tensors share one.",
                              meters.calls));
  out.push_back(
      by_collective("rueda_bytes_total", "Bytes of this rank's input to collectives.", meters.bytes));
  out.push_back(by_collective("rueda_tensors_total", "Tensors in these collectives.", meters.tensors));
  const auto counter = [&](const char* name, const char* help, double value) {
    out.push_back(one(name, help, "counter", value));
  };
  const auto gauge = [&](const char* name, const char* help, double value) {
    out.push_back(one(name, help, "gauge", value));
  };
  const auto count = [](const Count& value) { return static_cast<double>(value.load()); };
  counter("rueda_planned_calls_total", "Collectives of learned plans, which were not negotiated.",
          count(meters.planned_calls));
  counter("rueda_plans_begun_total", "Learned plans that began.", count(meters.plans_begun));
  counter("rueda_plans_left_total", "Learned plans that ended.", count(meters.plans_left));
  counter("rueda_steps_total", "Steps of training.", count(meters.steps));
  out.push_back(histogram("rueda_step_seconds", "Time from the end of one step to the end of the next.",
                          meters.step_time));
  out.push_back(histogram("rueda_call_seconds",
                          "Time from when this rank had submitted all tensors of a collective to its end.",
                          meters.call_time));
  counter("rueda_running_seconds_total", "Time that backends took for collectives.",
          seconds(meters.running_ns.load()));
  out.push_back(waiting(meters));
  out.push_back(late_ranks(meters));
  counter("rueda_stalls_total", "Warnings about tensors that some ranks had not submitted; on rank 0.",
          count(meters.stalls));
  counter("rueda_link_sent_bytes_total", "Bytes that this rank has sent to ranks of other hosts.",
          count(meters.link_bytes));
  gauge("rueda_link_sent_bytes_per_second", "The same as a rate over the last seconds.",
        count(meters.link_bytes_per_s));
  gauge("rueda_operations_in_flight", "Operations that were submitted and have not ended.",
        static_cast<double>(gauges.in_flight));
  gauge("rueda_plan_active", "1 while this rank runs a learned plan.", gauges.has_plan ? 1 : 0);
  gauge("rueda_resident_bytes", "Memory of this process.", static_cast<double>(gauges.resident_bytes));
  gauge("rueda_up", "1 while the engine runs and has lost no rank.",
        gauges.is_initialized && gauges.is_healthy ? 1 : 0);
  gauge("rueda_size", "Ranks of the job; 0 before init.", static_cast<double>(gauges.size));
  return out;
}

std::string prometheus_text(const std::vector<Family>& families, const Labels& labels) {
  std::string text;
  for (const Family& family : families) {
    text += "# HELP " + family.name + " " + escaped(family.help, false) + "\n";
    text += "# TYPE " + family.name + " " + family.type + "\n";
    for (const Sample& sample : family.samples) {
      std::string all;
      for (const Labels& some : {labels, sample.labels})
        for (const auto& [key, value] : some)
          all += (all.empty() ? "" : ",") + key + "=\"" + escaped(value, true) + "\"";
      text += family.name + sample.suffix + (all.empty() ? "" : "{" + all + "}") + " " +
              number(sample.value) + "\n";
    }
  }
  return text;
}

std::string metrics_json(const std::vector<Family>& families) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const Family& family : families) {
    nlohmann::ordered_json& place = out[family.name];
    place = {{"type", family.type}, {"help", family.help}, {"samples", nlohmann::ordered_json::array()}};
    for (const Sample& sample : family.samples) {
      nlohmann::ordered_json labels = nlohmann::ordered_json::object();
      for (const auto& [key, value] : sample.labels) labels[key] = value;
      place["samples"].push_back({{"suffix", sample.suffix}, {"labels", labels}, {"value", sample.value}});
    }
  }
  return out.dump();
}

}  // namespace rueda::status
