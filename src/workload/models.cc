#include "workload/models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "workload/model_files.h"

namespace rueda::workload {
namespace {
constexpr double kMostComputeMs = 3600e3;
}  // namespace

int64_t Model::total() const {
  int64_t sum = 0;
  for (const Parameter& parameter : parameters) sum += parameter.count;
  return sum;
}

double earliest_end_ms(const Model& model, double forward_ms, double backward_ms, double ms_per_byte) {
  const auto count = static_cast<double>(model.parameters.size());
  double end = 0, appeared = 0;
  for (const Parameter& parameter : model.parameters) {
    const double ready = forward_ms + backward_ms * ++appeared / count;
    end = std::max(end, ready) + ms_per_byte * 4 * static_cast<double>(parameter.count);
  }
  return end;
}

Result<Model> parse_model(std::string_view json, std::string_view path) {
  const auto refuse = [&](std::string_view why) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} is not a list of gradients: {}; docs/bench.md describes the format", path, why));
  };
  const nlohmann::json root = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return refuse("it is not a JSON object");
  Model model;
  model.name = root.value("name", nlohmann::json()).is_string() ? root["name"].get<std::string>() : "";
  if (model.name.empty()) return refuse("it has no \"name\"");
  for (const auto& [key, target] :
       {std::pair("source", &model.source), std::pair("compute_source", &model.compute_source)}) {
    const auto text = root.find(key);
    if (text == root.end() || !text->is_string()) return refuse(fmt::format("it has no \"{}\"", key));
    *target = text->get<std::string>();
  }
  const auto compute = root.find("compute_ms");
  const bool is_time = compute != root.end() && compute->is_number() && compute->get<double>() > 0 &&
                       compute->get<double>() <= kMostComputeMs;
  if (!is_time)
    return refuse(fmt::format("\"compute_ms\" is not a positive number up to {}", kMostComputeMs));
  model.compute_ms = compute->get<double>();
  const auto list = root.find("parameters");
  if (list == root.end() || !list->is_array() || list->empty()) return refuse("it has no \"parameters\"");
  for (const nlohmann::json& entry : *list) {
    const bool is_pair = entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
                         entry[1].is_number_integer() && entry[1].get<int64_t>() > 0 &&
                         entry[1].get<int64_t>() < (int64_t{1} << 34);
    if (!is_pair) return refuse("an entry of \"parameters\" is not [name, number of elements]");
    model.parameters.push_back({entry[0].get<std::string>(), entry[1].get<int64_t>()});
  }
  const auto total = root.find("total");
  if (total == root.end() || !total->is_number_integer() || total->get<int64_t>() != model.total())
    return refuse(fmt::format("\"total\" is not the sum of its parameters, {}", model.total()));
  return model;
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
  std::ifstream file(name_or_path);
  if (!file)
    return Status(Code::kInvalidArgument,
                  fmt::format("cannot read {}; check the path of the model", name_or_path));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return parse_model(text, name_or_path);
}

}  // namespace rueda::workload
