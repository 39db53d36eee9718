// SPDX-License-Identifier: Apache-2.0
// Plans that callers share: the same problem asked for again gets the plan that is there.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "core/plan.hpp"

namespace trimul::core {

/// The least recently used plan makes room once `capacity` are there; who still holds it keeps it. Any number of threads may ask at once.
class PlanCache {
 public:
  /// Of every N that a long run meets, in both directions, with and without a mask: some kilobytes each.
  static constexpr std::size_t kCapacity = 256;

  struct Info {
    std::size_t hits = 0;  // calls that got a plan, since the process began or the cache was cleared
    std::size_t misses = 0;
    std::size_t entries = 0;
    std::size_t capacity = 0;
  };

  explicit PlanCache(std::size_t capacity = kCapacity) : capacity_(capacity) {}

  /// Throws as Plan's constructor; a failure is not kept.
  std::shared_ptr<const Plan> find_or_make(const Problem& problem, const PlanOptions& options);
  [[nodiscard]] Info info() const;
  /// Forgets every plan and both counts.
  void clear();

 private:
  struct Key {
    Problem problem;
    PlanOptions options;
    int num_threads;  // of plans on the CPU, which take it from the environment; 0 on a GPU
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct HashKey {
    std::size_t operator()(const Key& key) const;
  };
  using Entry = std::pair<const Key*, std::shared_ptr<const Plan>>;

  friend PlanCache& plan_cache();

  /// Null where there is none. The caller holds the mutex.
  std::shared_ptr<const Plan> take(const Key& key);
  /// Puts a plan in that is not there. The caller holds the mutex; what fails leaves the cache as it was.
  std::shared_ptr<const Plan> keep(const Key& key, std::shared_ptr<const Plan> plan);

  mutable std::mutex mutex_;
  std::size_t capacity_;
  std::size_t hits_ = 0;
  std::size_t misses_ = 0;
  std::list<Entry> recent_;  // most recently used first
  std::unordered_map<Key, std::list<Entry>::iterator, HashKey> places_;
};

/// The one that the C ABI serves from.
PlanCache& plan_cache();

}  // namespace trimul::core
