#pragma once

#include <memory>
#include <utility>

namespace weft::verify {

/// A copy-on-write value: copies share it until one of them is changed.
template <typename T>
class Shared {
 public:
  Shared() = default;
  Shared(T value) : value_(std::make_shared<T>(std::move(value))) {}

  const T& operator*() const { return value_ ? *value_ : kNothing; }
  const T* operator->() const { return &**this; }
  /// The value for changing; if it is shared, a copy first.
  T& edit() {
    if (!value_) value_ = std::make_shared<T>();
    if (value_.use_count() > 1) value_ = std::make_shared<T>(*value_);
    return *value_;
  }
  /// Whether one is a copy of the other and neither has changed since.
  bool is(const Shared& other) const { return value_ == other.value_; }
  bool operator==(const Shared& other) const { return is(other) || **this == *other; }

 private:
  static const T kNothing;

  std::shared_ptr<T> value_;
};

// Made when the library is loaded, as a static of a function would not be (src/base/fork.h).
template <typename T>
const T Shared<T>::kNothing{};

}  // namespace weft::verify
