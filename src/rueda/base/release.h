// The release of this build; ranks of one job must all run the same.
#pragma once

namespace rueda {

inline constexpr char kRelease[] = "0.1.0";

}  // namespace rueda
