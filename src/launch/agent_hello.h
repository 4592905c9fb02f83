// How an agent introduces itself to its launcher.
#pragma once

#include <optional>
#include <string>

#include "launch/agent_messages.h"
#include "launch/joining.h"

namespace rueda::launch {

// private_dir: of this agent. joining: empty if the launcher has started it.
Hello hello_of(const std::string& release, const std::string& private_dir,
               const std::optional<Joining>& joining);

}  // namespace rueda::launch
