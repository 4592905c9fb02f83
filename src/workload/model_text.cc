// The text of a workload: bench/models/*.json, and files of the same form.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "workload/json_text.h"
#include "workload/model_files.h"
#include "workload/models.h"

namespace rueda::workload {
namespace {

using nlohmann::json;
constexpr double kMostComputeMs = 3600e3;
constexpr int64_t kMostElements = int64_t{1} << 34;
constexpr int kMostRanks = 1'000'000;
constexpr size_t kLineBytes = 100;
constexpr std::array<std::string_view, 5> kExchangeKeys = {"name", "operation", "elements", "at_ms", "waits"};

std::string quoted_text(const std::string& text) {
  return json(text).dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

// Each function reads a part of the file. What it returns says what is wrong with that part; "": nothing.

std::string read_head(const json& root, Model& model) {
  for (const auto& [key, target] : {std::pair("name", &model.name), std::pair("source", &model.source),
                                    std::pair("compute_source", &model.compute_source)}) {
    const auto text = root.find(key);
    if (text == root.end() || !text->is_string()) return fmt::format("it has no \"{}\"", key);
    *target = text->get<std::string>();
  }
  if (model.name.empty()) return "it has no \"name\"";
  if (has_control_character(model.name)) return "\"name\" has a control character";
  const auto compute = root.find("compute_ms");
  if (compute == root.end() || !compute->is_number() || compute->get<double>() <= 0 ||
      compute->get<double>() > kMostComputeMs)
    return fmt::format("\"compute_ms\" is not a positive number up to {}", kMostComputeMs);
  model.compute_ms = compute->get<double>();
  return {};
}

std::string read_parameters(const json& root, Model& model) {
  const auto list = root.find("parameters");
  const bool may_be_empty = root.contains("exchanges");  // where all state is sharded
  if (list == root.end() || !list->is_array() || (list->empty() && !may_be_empty))
    return "it has no \"parameters\"";
  std::set<std::string> names;
  for (const json& entry : *list) {
    const bool is_pair = entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
                         entry[1].is_number_integer() && entry[1].get<int64_t>() > 0 &&
                         entry[1].get<int64_t>() < kMostElements;
    if (!is_pair) return "an entry of \"parameters\" is not [name, number of elements]";
    model.parameters.push_back({entry[0].get<std::string>(), entry[1].get<int64_t>()});
    if (!names.insert(model.parameters.back().name).second)
      return fmt::format("two of \"parameters\" are named {}; give each gradient a name of its own",
                         quoted_text(model.parameters.back().name));
  }
  const auto total = root.find("total");
  if (total == root.end() || !total->is_number_integer() || total->get<int64_t>() != model.total())
    return fmt::format("\"total\" is not the sum of its parameters, {}", model.total());
  return {};
}

std::string read_ready(const json& root, Model& model) {
  const auto list = root.find("ready_ms");
  if (list == root.end()) return {};
  const size_t count = model.parameters.size();
  if (!list->is_array() || list->size() != count)
    return fmt::format("\"ready_ms\" is not a list of {} numbers, one for each of \"parameters\"", count);
  for (size_t i = 0; i < count; ++i) {
    const json& entry = (*list)[i];
    const std::string& name = model.parameters[i].name;
    if (!entry.is_number() || entry.get<double>() <= 0 || entry.get<double>() > model.compute_ms)
      return fmt::format("\"ready_ms\" of {} is {}, and not a number above 0 and up to \"compute_ms\", {}",
                         name, entry.dump(), model.compute_ms);
    if (i > 0 && entry.get<double>() < model.stated_ready_ms.back())
      return fmt::format(
          "\"ready_ms\" of {} is {}, before that of {}, {}; put \"parameters\" into the order in "
          "which their gradients are ready",
          name, entry.dump(), model.parameters[i - 1].name, model.stated_ready_ms.back());
    model.stated_ready_ms.push_back(entry.get<double>());
  }
  return {};
}

// What is wrong with one of them. after_ms: when the one before begins.
std::string read_exchange(const json& entry, double after_ms, const Model& model, Exchange& exchange) {
  const auto text_at = [&](const char* key) {
    const auto found = entry.find(key);
    return found != entry.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  exchange.name = entry.is_object() ? text_at("name") : "";
  if (exchange.name.empty()) return "an entry of \"exchanges\" is not an object with a \"name\"";
  for (const auto& [key, value] : entry.items())
    if (std::ranges::find(kExchangeKeys, key) == kExchangeKeys.end())
      return fmt::format("exchange {} has \"{}\", which is none of name, operation, elements, at_ms, waits",
                         exchange.name, key);
  const std::optional<Collective> what = find_collective(text_at("operation"));
  if (!what)
    return fmt::format(
        "\"operation\" of exchange {} is none of allreduce, allgather, reducescatter, alltoall, broadcast",
        exchange.name);
  exchange.what = *what;
  const json elements = entry.value("elements", json()), at = entry.value("at_ms", json());
  if (!elements.is_number_integer() || elements.get<int64_t>() < 1 ||
      elements.get<int64_t>() >= kMostElements)
    return fmt::format("\"elements\" of exchange {} is not a positive number", exchange.name);
  exchange.count = elements.get<int64_t>();
  if (!at.is_number() || at.get<double>() < 0 || at.get<double>() > model.compute_ms)
    return fmt::format("\"at_ms\" of exchange {} is not a number from 0 to \"compute_ms\", {}", exchange.name,
                       model.compute_ms);
  exchange.at_ms = at.get<double>();
  if (exchange.at_ms < after_ms)
    return fmt::format("exchange {} begins before the one above it; put \"exchanges\" into their order",
                       exchange.name);
  const json waits = entry.value("waits", json(true));
  if (!waits.is_boolean()) return fmt::format("\"waits\" of exchange {} is not true or false", exchange.name);
  exchange.is_awaited = waits.get<bool>();
  return {};
}

std::string read_exchanges(const json& root, Model& model) {
  const auto list = root.find("exchanges");
  if (list == root.end()) return {};
  if (!list->is_array()) return "\"exchanges\" is not a list";
  std::set<std::string> names;
  for (const json& entry : *list) {
    const double after_ms = model.exchanges.empty() ? 0 : model.exchanges.back().at_ms;
    std::string why = read_exchange(entry, after_ms, model, model.exchanges.emplace_back());
    if (!why.empty()) return why;
    if (!names.insert(model.exchanges.back().name).second)
      return fmt::format("two of \"exchanges\" are named {}", model.exchanges.back().name);
  }
  return {};
}

std::string read_job(const json& root, Model& model) {
  if (const auto spread = root.find("spread"); spread != root.end()) {
    model.spread.emplace();
    for (const auto& [key, target] :
         {std::pair("step", &model.spread->step), std::pair("rank", &model.spread->rank)}) {
      const json value = spread->is_object() ? spread->value(key, json()) : json();
      if (!value.is_number() || value.get<double>() < 0 || value.get<double>() >= 1)
        return R"("spread" is not {"step": S, "rank": R} with numbers from 0 to less than 1)";
      *target = value.get<double>();
    }
  }
  if (const auto world = root.find("world"); world != root.end()) {
    if (!world->is_number_integer() || world->get<int64_t>() < 1 || world->get<int64_t>() > kMostRanks)
      return fmt::format("\"world\" is not a number of ranks from 1 to {}", kMostRanks);
    model.world = world->get<int>();
  }
  return {};
}

// Microseconds and not 0, so that what is read is what the checks above want.
double rounded(double ms) { return std::max(0.001, std::round(ms * 1e3) / 1e3); }

// "1, 2.5, 3", in lines.
std::string in_lines(const std::vector<double>& numbers, std::string_view indent) {
  std::string text, line;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const std::string next = fmt::format("{}{}", rounded(numbers[i]), i + 1 < numbers.size() ? "," : "");
    if (!line.empty() && line.size() + 1 + next.size() > kLineBytes) {
      text += line + '\n';
      line.clear();
    }
    line += (line.empty() ? indent : " ");
    line += next;
  }
  return text + line;
}

std::string exchanges_text(const std::vector<Exchange>& exchanges) {
  if (exchanges.empty()) return {};
  std::vector<std::string> lines;
  for (const Exchange& one : exchanges)
    lines.push_back(fmt::format(
        "  {{\"name\": {}, \"operation\": \"{}\", \"elements\": {}, \"at_ms\": {}, \"waits\": {}}}",
        quoted_text(one.name), operation_of(one.what), one.count, std::round(one.at_ms * 1e3) / 1e3,
        one.is_awaited));
  return fmt::format(",\n \"exchanges\": [\n{}\n ]", fmt::join(lines, ",\n"));
}

}  // namespace

Result<Model> parse_model(std::string_view text, std::string_view path) {
  const Result<json> parsed = parse_json(text);
  const json root = parsed.is_ok() ? parsed.value() : json();
  Model model;
  std::string why = !parsed.is_ok() ? parsed.status().why : root.is_object() ? "" : "it is not a JSON object";
  for (const auto read : {read_head, read_parameters, read_ready, read_exchanges, read_job})
    if (why.empty()) why = read(root, model);
  if (why.empty()) return model;
  return Status(
      Code::kInvalidArgument,
      fmt::format("{} is not a list of gradients: {}; docs/bench.md describes the format", path, why));
}

std::string text_of(const Model& model) {
  std::string text = fmt::format(
      "{{\n \"name\": {},\n \"source\": {},\n \"compute_ms\": {},\n \"compute_source\": {},\n \"total\": "
      "{},\n",
      quoted_text(model.name), quoted_text(model.source), rounded(model.compute_ms),
      quoted_text(model.compute_source), model.total());
  if (model.world > 0) text += fmt::format(" \"world\": {},\n", model.world);
  if (model.spread)
    text += fmt::format(" \"spread\": {{\"step\": {:.4f}, \"rank\": {:.4f}}},\n", model.spread->step,
                        model.spread->rank);
  text += " \"parameters\": [\n";
  for (size_t i = 0; i < model.parameters.size(); ++i)
    text += fmt::format("  [{}, {}]{}\n", quoted_text(model.parameters[i].name), model.parameters[i].count,
                        i + 1 < model.parameters.size() ? "," : "");
  text += " ]";
  if (!model.stated_ready_ms.empty())
    text += fmt::format(",\n \"ready_ms\": [\n{}\n ]", in_lines(model.stated_ready_ms, "  "));
  return text + exchanges_text(model.exchanges) + "\n}\n";
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelFile& file : kModelFiles) names.emplace_back(file.name);
  return names;
}

Result<Model> find_model(const std::string& name_or_path) {
  for (const ModelFile& file : kModelFiles)
    if (file.name == name_or_path) return parse_model(file.text, file.name);
  if (!name_or_path.ends_with(".json"))
    return Status(Code::kInvalidArgument,
                  fmt::format("unknown model {}; choose one of {}, or give the path of a .json file",
                              name_or_path, fmt::join(model_names(), ", ")));
  const Result<std::string> text = read_text(name_or_path, "model");
  return text.is_ok() ? parse_model(text.value(), name_or_path) : text.status();
}

}  // namespace rueda::workload
