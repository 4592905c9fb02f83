// What the pages of commands have in common: one file that needs nothing else, light and dark, by keyboard,
// and printed. `rueda timeline summary --html` and `rueda simulate --html` are made of it. Pure.
#pragma once

#include <string>
#include <string_view>

namespace rueda::timeline {

// What a program called something, as it is; what cannot be seen as its bytes (\x1b).
std::string literal(std::string_view text);
// Apart from the text around it, whatever direction its script has.
std::string name_html(std::string_view name);
// A table that scrolls where the window is narrow. heads: cells of the first row, without <th>.
std::string table(std::string_view label, std::string_view heads, std::string_view rows);
// A part of a chart. style: a class of page_text.h.
std::string rectangle(std::string_view style, double x, double y, double width, double height);

// Everything up to what is below the heading, and from there to the end. style: more than page_text.h has.
std::string begin_page(std::string_view title, std::string_view style = "");
std::string end_page();

}  // namespace rueda::timeline
