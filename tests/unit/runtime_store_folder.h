// A folder with the store and the secret of a job, in which ranks of one process meet.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "rueda/base/handshake.h"
#include "rueda/runtime/rendezvous_point.h"

namespace rueda::runtime {

inline Deadline soon() { return Deadline::after(20 * kSecond); }

class StoreFolder : public testing::Test {
 protected:
  StoreFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "rueda-exchange-XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
    EXPECT_TRUE(write_secret_file(dir_ + "/secret", make_secret().value()).is_ok());
  }
  ~StoreFolder() override { std::filesystem::remove_all(dir_); }

  [[nodiscard]] store::World world(Rank rank, Rank size) const {
    store::World world;
    world.rank = rank;
    world.size = size;
    world.job = "exchange-test";
    world.launcher = "environment";
    world.method = store::World::Method::kUrl;
    world.url = "file://" + dir_ + "/store";
    world.secret_file = dir_ + "/secret";
    return world;
  }
  // The number of the next exchange of this process.
  [[nodiscard]] Epoch next(RendezvousPoint& point, Rank rank, Rank size) const {
    const Status opened = point.open(world(rank, size), "", soon());
    EXPECT_TRUE(opened.is_ok()) << opened.why;
    const Result<Epoch> number = point.next_number(soon());
    EXPECT_TRUE(number.is_ok()) << number.status().why;
    return number.is_ok() ? number.value() : -1;
  }

  std::string dir_;
};

}  // namespace rueda::runtime
