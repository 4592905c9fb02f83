// What a process says of itself in the store that it serves.
#pragma once

#include <string_view>

namespace rueda::members {

// Its contact, as text. Another process may have got the address of a member since that has ended.
inline constexpr std::string_view kContactKey = "elastic/contact";

}  // namespace rueda::members
