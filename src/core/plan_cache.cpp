// SPDX-License-Identifier: Apache-2.0
#include "core/plan_cache.hpp"

#if defined(__unix__)
#include <pthread.h>
#endif

#include <functional>
#include <new>

#include "core/env.hpp"

namespace trimul::core {

std::size_t PlanCache::HashKey::operator()(const Key& key) const {
  std::size_t hash = std::hash<std::string_view>{}(key.options.implementation);
  const auto mix = [&hash](auto value) { hash = (hash ^ std::hash<decltype(value)>{}(value)) * 0x9E3779B97F4A7C15ULL; };
  const Problem& p = key.problem;
  mix(p.batch);
  mix(p.tokens);
  mix(p.c_z);
  mix(p.c_hidden);
  // The small fields together.
  mix((static_cast<int>(p.x_dtype) << 8) + (static_cast<int>(p.direction) << 7) + (static_cast<int>(p.precision) << 4) +
      (int{p.has_mask} << 3) + (int{p.has_in_bias} << 2) + (int{p.has_out_bias} << 1) + int{p.residual});
  mix(p.device.index);
  for (const Knob& knob : key.options.knobs) mix(knob.value);
  return hash ^ (hash >> 32);
}

std::shared_ptr<const Plan> PlanCache::take(const Key& key) {
  const auto place = places_.find(key);
  if (place == places_.end()) return nullptr;
  recent_.splice(recent_.begin(), recent_, place->second);
  return place->second->second;
}

std::shared_ptr<const Plan> PlanCache::find_or_make(const Problem& problem, const PlanOptions& options) {
  const Key key{problem, options, problem.device.type == DeviceType::kCpu ? env::num_threads() : 0};
  {
    const std::lock_guard lock(mutex_);
    if (auto plan = take(key)) {
      ++hits_;
      return plan;
    }
  }
  // Other threads may look meanwhile; where two make the same plan, the first one in stays.
  auto made = std::make_shared<const Plan>(problem, options);
  const std::lock_guard lock(mutex_);
  auto plan = take(key);
  if (!plan) plan = keep(key, std::move(made));
  ++misses_;
  return plan;
}

std::shared_ptr<const Plan> PlanCache::keep(const Key& key, std::shared_ptr<const Plan> plan) {
  const auto place = places_.try_emplace(key).first;
  try {
    recent_.emplace_front(&place->first, plan);
  } catch (...) {
    places_.erase(place);
    throw;
  }
  place->second = recent_.begin();
  if (places_.size() > capacity_) {
    const auto oldest = places_.find(*recent_.back().first);
    recent_.pop_back();
    places_.erase(oldest);
  }
  return plan;
}

PlanCache::Info PlanCache::info() const {
  const std::lock_guard lock(mutex_);
  return {.hits = hits_, .misses = misses_, .entries = places_.size(), .capacity = capacity_};
}

void PlanCache::clear() {
  const std::lock_guard lock(mutex_);
  places_.clear();
  recent_.clear();
  hits_ = misses_ = 0;
}

PlanCache& plan_cache() {
  // Never destroyed: plans may be asked for while the process ends. Nor allocated: clearing it cannot fail.
  alignas(PlanCache) static std::byte storage[sizeof(PlanCache)];
  static PlanCache& cache = *new (storage) PlanCache;
#if defined(__unix__)
  // A process that forks while another thread is here leaves its child a cache that is whole and that nobody holds.
  [[maybe_unused]] static const int registered =
      pthread_atfork([] { cache.mutex_.lock(); }, [] { cache.mutex_.unlock(); }, [] { cache.mutex_.unlock(); });
#endif
  return cache;
}

}  // namespace trimul::core
