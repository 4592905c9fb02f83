// The release of this build; ranks of one job must all run the same.
#pragma once

namespace rueda {

inline constexpr char kRelease[] = "0.1.0";
inline constexpr char kHorovodRelease[] = "0.28.1";  // whose public interface the alias package has

}  // namespace rueda
