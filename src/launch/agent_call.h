// How an agent that nobody has started finds its launcher.
#pragma once

#include <functional>
#include <string>

#include "rueda/base/clock.h"
#include "rueda/base/handshake.h"
#include "rueda/base/unique_fd.h"

namespace rueda::launch {

// url: "tcp://10.0.0.1:5000", as the launcher prints it. Tries again until the deadline while nobody listens
// there; say: once, what is waited for. The connection has proved itself on both sides.
Result<UniqueFd> call_launcher(const std::string& url, const Secret& secret, Deadline deadline,
                               const std::function<void(const std::string&)>& say);

}  // namespace rueda::launch
