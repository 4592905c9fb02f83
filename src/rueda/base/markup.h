// Characters that HTML and XML give a meaning. Pure.
#pragma once

#include <string>
#include <string_view>

namespace rueda {

// How a character of a text is written; empty: as it is.
constexpr std::string_view entity_of(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    default:
      return {};
  }
}

inline void append_escaped(std::string& out, char c) {
  const std::string_view entity = entity_of(c);
  if (entity.empty())
    out += c;
  else
    out += entity;
}

}  // namespace rueda
