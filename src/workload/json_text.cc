#include "workload/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

namespace rueda::workload {
namespace {

using nlohmann::json;

// "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error while …"
std::string fault_of(const json::exception& error) {
  const std::string said = error.what();
  const size_t begin = said.find("at line "), end = said.find(':', begin);
  if (begin == std::string::npos || end == std::string::npos) return "it has a number that is too large";
  const bool is_cut = said.find("unexpected end of input") != std::string::npos ||
                      said.find("missing closing quote") != std::string::npos;
  return fmt::format("it is no JSON {}{}", said.substr(begin, end - begin),
                     is_cut ? ", where it ends too early" : "");
}

}  // namespace

Result<std::string> read_text(const std::string& path, std::string_view what) {
  constexpr size_t kPieceBytes = 1 << 20;
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  if (!file || std::filesystem::is_directory(path, error))
    return Status(Code::kInvalidArgument,
                  fmt::format("cannot read {}; check the path of the {}", path, what));
  std::string text;
  for (size_t have = 0; have <= kMostTextBytes; have = text.size()) {
    const size_t piece = std::min(kPieceBytes, kMostTextBytes + 1 - have);
    text.resize(have + piece);
    file.read(text.data() + have, static_cast<std::streamsize>(piece));
    text.resize(have + static_cast<size_t>(file.gcount()));
    if (!file) return text;
  }
  return Status(Code::kInvalidArgument,
                fmt::format("{} has more than {} MiB, which no {} needs; check the path of the {}", path,
                            kMostTextBytes >> 20, what, what));
}

Result<json> parse_json(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return Status(Code::kInvalidArgument, "it is empty");
  std::string twice;
  std::vector<std::set<std::string>> keys;  // of the objects around
  const auto look = [&](int /*depth*/, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second &&
        twice.empty())
      twice = parsed.dump(-1, ' ', /*ensure_ascii=*/true);
    return true;
  };
  // The library reports by exceptions; they end here.
  try {
    json root = json::parse(text, look);
    if (twice.empty()) return root;
    return Status(Code::kInvalidArgument, fmt::format("an object has the key {} twice", twice));
  } catch (const json::exception& error) {
    return Status(Code::kInvalidArgument, fault_of(error));
  }
}

bool has_control_character(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f) return true;
    // U+0080 to U+009F in UTF-8.
    if (byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0) return true;
  }
  return false;
}

}  // namespace rueda::workload
