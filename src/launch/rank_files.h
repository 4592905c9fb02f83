// The files by which the ranks of a host and their agent tell one another something, in the agent's folder.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "launch/agent_messages.h"

namespace rueda::launch {

// What rueda.run collects of a rank that has ended.
void send_result_file(const std::string& folder, Rank rank, const SendMessage& send);
void send_metrics(const std::string& folder, Rank rank, const SendMessage& send);

// What the launcher tells the ranks. Without it they say less about what is wrong.
void keep_news(const std::string& folder, std::span<const std::byte> payload);

}  // namespace rueda::launch
