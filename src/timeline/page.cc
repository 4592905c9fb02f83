#include "timeline/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "rueda/base/markup.h"
#include "timeline/page_text.h"

namespace rueda::timeline {
namespace {

// Characters that show nothing and would move or turn others: the ends of their ranges, in UTF-8.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kUnseen = {
    {{"\u0080", "\u009f"}, {"\u202a", "\u202e"}, {"\u2066", "\u2069"}}};

// The length of such a character at the beginning of the text, in bytes; 0: another one is there.
size_t unseen(std::string_view text) {
  if (static_cast<unsigned char>(text[0]) < 0x20 || text[0] == 0x7F) return 1;
  for (const auto& [first, last] : kUnseen) {
    const std::string_view here = text.substr(0, first.size());
    if (here.size() == first.size() && here >= first && here <= last) return here.size();
  }
  return 0;
}

}  // namespace

std::string literal(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t hidden = unseen(text);
    for (const char byte : text.substr(0, hidden))
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    if (hidden == 0) append_escaped(out, text[0]);
    text.remove_prefix(std::max<size_t>(hidden, 1));
  }
  return out;
}

std::string name_html(std::string_view name) { return "<bdi>" + literal(name) + "</bdi>"; }

std::string table(std::string_view label, std::string_view heads, std::string_view rows) {
  return fmt::format(
      "<div class=\"wide\" role=\"region\" aria-label=\"{}\" "
      "tabindex=\"0\"><table><thead><tr>{}</tr></thead>\n"
      "<tbody>{}</tbody></table></div>\n",
      label, heads, rows);
}

std::string rectangle(std::string_view style, double x, double y, double width, double height) {
  return fmt::format(R"(<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>)", style, x,
                     y, width, height);
}

std::string begin_page(std::string_view title, std::string_view style) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n"
      "<style>{1}{2}</style></head><body><main>\n<h1>{0}</h1>\n",
      title, kPageStyle, style);
}

std::string end_page() { return fmt::format("</main><script>{}</script>\n</body></html>\n", kPageScript); }

}  // namespace rueda::timeline
