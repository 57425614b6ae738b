#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace weft::runtime {

/// A pool of blocks of memory, kept from call to call so that a warm call causes no page faults. Thread-safe. Blocks
/// are aligned to 64 bytes, those of 64 KiB and more to a page; their content is arbitrary.
class Arena {
 public:
  /// A block, given back when it goes out of scope. Must not outlive its arena.
  class Block {
   public:
    Block() = default;
    Block(Block&& other) noexcept { swap(other); }
    Block& operator=(Block&& other) noexcept {
      Block(std::move(other)).swap(*this);
      return *this;
    }
    ~Block() {
      if (data_) arena_->release(data_, capacity_);
    }

    /// Null when no bytes were asked for.
    std::byte* data() const { return data_; }
    /// The block's size: at least the size asked for.
    int64_t capacity() const { return capacity_; }

   private:
    friend class Arena;
    Block(Arena* arena, std::byte* data, int64_t capacity) : arena_(arena), data_(data), capacity_(capacity) {}
    void swap(Block& other) noexcept {
      std::swap(arena_, other.arena_);
      std::swap(data_, other.data_);
      std::swap(capacity_, other.capacity_);
    }

    Arena* arena_ = nullptr;
    std::byte* data_ = nullptr;
    int64_t capacity_ = 0;
  };

  /// Keeps at most `limit` bytes that nobody uses.
  explicit Arena(int64_t limit) : limit_(limit) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// A block of at least `bytes`. std::bad_alloc if there is no memory even after all idle blocks were freed.
  Block acquire(int64_t bytes) { return acquire(bytes, kMostLarger); }

  /// A block at most a quarter larger than `bytes`, for memory that is kept for long: large blocks stay free for the
  /// runs that need them.
  Block acquire_close(int64_t bytes) { return acquire(bytes, 1); }

  /// The bytes in idle blocks.
  int64_t idle_bytes() const;
  /// Gives all idle blocks back to the system.
  void trim();

 private:
  /// How many times larger than asked for a block may be. With this limit the forward of a layer can use the block of
  /// its backward, but a small call does not take the block of a large one.
  static constexpr int64_t kMostLarger = 8;

  friend Arena& process_arena();
  Block acquire(int64_t bytes, int64_t most_larger);
  void release(std::byte* data, int64_t capacity) noexcept;
  /// Takes an idle block of this list into use. Call it under the lock.
  std::byte* take(std::map<int64_t, std::vector<std::byte*>>::iterator blocks);
  /// Takes an idle block of this list and gives it back to the system.
  void drop(std::map<int64_t, std::vector<std::byte*>>::iterator blocks) noexcept;

  const int64_t limit_;
  mutable std::mutex mutex_;
  std::map<int64_t, std::vector<std::byte*>> idle_;  ///< by capacity
  int64_t idle_bytes_ = 0;
};

/// The engine's arena, with the limit of Settings::arena_bytes. Usable in a forked child.
Arena& process_arena();

}  // namespace weft::runtime
