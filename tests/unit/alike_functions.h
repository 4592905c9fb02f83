// Whether a function that we declare can be called as another header declares it.
#pragma once

#include <type_traits>

namespace rueda {

// Two functions are alike if they have as many arguments, of equal sizes and kinds.
template <class A, class B>
constexpr bool is_alike = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;
template <class R, class... A, class S, class... B>
constexpr bool are_alike(R (*)(A...), S (*)(B...)) {
  if constexpr (sizeof...(A) == sizeof...(B))
    return is_alike<R, S> && (is_alike<A, B> && ...);
  else
    return false;
}

}  // namespace rueda
