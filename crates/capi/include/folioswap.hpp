/* folioswap for C++11 and later: the handles of folioswap.h as values that free themselves, and its codes as exceptions.
 *
 *   folioswap::Swap swap(512u << 20);                     // a limit of 512 MiB; compressed RAM and a file behind it
 *   folioswap::Region region = swap.region(8ull << 30);   // 8 GiB
 *   double *numbers = region.as<double>();
 *
 * Every value is moved, never copied. An empty value (moved from) may only be assigned to or destroyed. The order in which
 * values are destroyed does not matter to the library: a region outlives its swap, a pin its region, an object its space. The
 * memory of a region ends with the region and its pins, and no thread may use it afterwards.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef FOLIOSWAP_HPP
#define FOLIOSWAP_HPP

#include <folioswap.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace folioswap {

/* A call that was refused, and has changed nothing. what() is the library's line: why, and the next step. */
class Error : public std::runtime_error {
public:
    explicit Error(FolioswapCode code) : std::runtime_error(folioswap_last_error()), code_(code) {}
    FolioswapCode code() const noexcept { return code_; }

private:
    FolioswapCode code_;
};

/* Throws an Error unless the code is FOLIOSWAP_OK. */
inline void check(FolioswapCode code)
{
    if (code != FOLIOSWAP_OK)
        throw Error(code);
}

/* A handle that is freed by FREE. */
template <typename T, void (*FREE)(T *)>
class Handle {
public:
    Handle() noexcept : handle_(nullptr) {}
    explicit Handle(T *handle) noexcept : handle_(handle) {}
    Handle(Handle &&other) noexcept : handle_(other.release()) {}
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;
    Handle &operator=(Handle &&other) noexcept
    {
        if (this != &other) {
            FREE(handle_);
            handle_ = other.release();
        }
        return *this;
    }
    ~Handle() { FREE(handle_); }

    /* The handle, for functions of folioswap.h; it stays this value's. */
    T *get() const noexcept { return handle_; }
    /* The handle, which the caller frees from now on. */
    T *release() noexcept
    {
        T *handle = handle_;
        handle_ = nullptr;
        return handle;
    }
    explicit operator bool() const noexcept { return handle_ != nullptr; }

private:
    T *handle_;
};

/* The reaction when the limit is reached and nothing more can be swapped out. */
enum class WhenFull : int { Exceed = FOLIOSWAP_WHEN_FULL_EXCEED, Abort = FOLIOSWAP_WHEN_FULL_ABORT };

/* Advice about a range of a region. */
enum class Advice : int {
    PageOut = FOLIOSWAP_PAGE_OUT,
    Cold = FOLIOSWAP_COLD,
    WillNeed = FOLIOSWAP_WILL_NEED,
    Populate = FOLIOSWAP_POPULATE
};

/* The folios in which the contents of an object come. */
enum class Huge : int { Never = FOLIOSWAP_HUGE_NEVER, Always = FOLIOSWAP_HUGE_ALWAYS, WithinSize = FOLIOSWAP_HUGE_WITHIN_SIZE };

/* A range of a region that stays resident as long as this lives. */
class Pin : public Handle<FolioswapPin, folioswap_pin_free> {
public:
    Pin() noexcept = default;
    explicit Pin(FolioswapPin *pin) noexcept : Handle(pin) {}
};

/* Private memory, all zero at first. Offsets and lengths are bytes. */
class Region : public Handle<FolioswapRegion, folioswap_region_free> {
public:
    Region() noexcept = default;
    explicit Region(FolioswapRegion *region) noexcept : Handle(region) {}

    /* The first byte, at a multiple of 2 MiB. Another one after grow(). */
    void *data() const noexcept { return folioswap_region_base(get()); }
    template <typename T>
    T *as() const noexcept { return static_cast<T *>(data()); }
    std::size_t size() const noexcept { return folioswap_region_length(get()); }

    /* Another region with the same contents, whose pages are copied when they are written. */
    Region clone() const
    {
        FolioswapRegion *made = nullptr;
        check(folioswap_region_clone(get(), &made));
        return Region(made);
    }
    /* Keeps a range in memory; at most half of the limit can be pinned. */
    Pin pin(std::size_t offset, std::size_t bytes) const
    {
        FolioswapPin *made = nullptr;
        check(folioswap_region_pin(get(), offset, bytes, &made));
        return Pin(made);
    }
    void advise(std::size_t offset, std::size_t bytes, Advice advice) const
    {
        check(folioswap_region_advise(get(), offset, bytes, static_cast<int>(advice)));
    }
    std::size_t resident(std::size_t offset, std::size_t bytes) const
    {
        std::size_t found = 0;
        check(folioswap_region_resident(get(), offset, bytes, &found));
        return found;
    }
    /* Discards a range, which reads as zeroes afterwards. No other thread may use the region meanwhile. */
    void dont_need(std::size_t offset, std::size_t bytes) { check(folioswap_region_dont_need(get(), offset, bytes)); }
    /* Makes the region larger. No other thread may use it meanwhile, and it may move. */
    void grow(std::size_t bytes) { check(folioswap_region_grow(get(), bytes)); }
};

/* A limit, devices, and the engine that keeps the limit. Threads may share it. */
class Swap : public Handle<FolioswapSwap, folioswap_swap_free> {
public:
    Swap() noexcept = default;
    explicit Swap(FolioswapSwap *swap) noexcept : Handle(swap) {}
    /* Devices as `folioswap run --swap` takes them; none: compressed RAM, and a file in /var/tmp behind it. */
    explicit Swap(std::uint64_t limit, const std::vector<std::string> &devices = std::vector<std::string>(),
                  WhenFull when_full = WhenFull::Exceed)
        : Handle(make(limit, devices, when_full))
    {
    }

    Region region(std::size_t bytes) const
    {
        FolioswapRegion *made = nullptr;
        check(folioswap_region_new(get(), bytes, &made));
        return Region(made);
    }
    /* A swap within this one, with a limit of its own. Devices are positions in this one's list; none: all of them. */
    Swap group(std::uint64_t limit, const std::vector<std::size_t> &devices = std::vector<std::size_t>(),
               WhenFull when_full = WhenFull::Exceed) const
    {
        FolioswapSwap *made = nullptr;
        check(folioswap_group_new(get(), limit, devices.data(), devices.size(), static_cast<int>(when_full), &made));
        return Swap(made);
    }
    std::uint64_t limit() const noexcept { return folioswap_swap_limit(get()); }
    void set_limit(std::uint64_t limit) const { check(folioswap_swap_set_limit(get(), limit)); }
    void set_tiers(const char *tiers) const { check(folioswap_swap_set_tiers(get(), tiers)); }
    /* Refuses further regions. */
    void close() const { check(folioswap_swap_close(get())); }
    bool serves_system_calls() const noexcept { return folioswap_swap_serves_system_calls(get()) == 1; }
    /* "limit", "charge", "resident", "faults", or a counter by the kernel's name ("pswpin", ...). */
    std::uint64_t figure(const std::string &name) const
    {
        std::uint64_t value = 0;
        check(folioswap_swap_figure(get(), name.c_str(), &value));
        return value;
    }
    /* A few lines of text about the swap. */
    std::string describe() const
    {
        std::vector<char> text(4096);
        for (;;) {
            std::size_t needed = 0;
            check(folioswap_swap_describe(get(), text.data(), text.size(), &needed));
            if (needed <= text.size())
                return std::string(text.data());
            text.resize(needed);
        }
    }

private:
    static FolioswapSwap *make(std::uint64_t limit, const std::vector<std::string> &devices, WhenFull when_full)
    {
        std::vector<const char *> texts;
        for (const std::string &device : devices)
            texts.push_back(device.c_str());
        FolioswapSwap *made = nullptr;
        check(folioswap_swap_new(limit, texts.data(), texts.size(), static_cast<int>(when_full), &made));
        return made;
    }
};

/* Contents by offset: a file without a name, in memory. Any number of threads may use it at once. */
class ShmemObject : public Handle<FolioswapShmemObject, folioswap_shmem_object_free> {
public:
    ShmemObject() noexcept = default;
    explicit ShmemObject(FolioswapShmemObject *object) noexcept : Handle(object) {}

    std::uint64_t size() const noexcept { return folioswap_shmem_size(get()); }
    void set_size(std::uint64_t size) const { check(folioswap_shmem_set_size(get(), size)); }
    std::uint64_t content_bytes() const noexcept { return folioswap_shmem_content_bytes(get()); }
    /* The bytes that were copied: fewer at the object's end. */
    std::size_t read(std::uint64_t offset, void *into, std::size_t bytes) const
    {
        std::size_t done = 0;
        check(folioswap_shmem_read(get(), offset, static_cast<std::uint8_t *>(into), bytes, &done));
        return done;
    }
    /* The bytes that were copied: fewer only where space ran out on the way. */
    std::size_t write(std::uint64_t offset, const void *from, std::size_t bytes) const
    {
        std::size_t done = 0;
        check(folioswap_shmem_write(get(), offset, static_cast<const std::uint8_t *>(from), bytes, &done));
        return done;
    }
    void punch_hole(std::uint64_t offset, std::uint64_t length) const { check(folioswap_shmem_punch_hole(get(), offset, length)); }
    void allocate(std::uint64_t offset, std::uint64_t length) const { check(folioswap_shmem_allocate(get(), offset, length)); }
    /* FOLIOSWAP_NO_OFFSET: there is none. */
    std::uint64_t seek_data(std::uint64_t offset) const
    {
        std::uint64_t found = 0;
        check(folioswap_shmem_seek_data(get(), offset, &found));
        return found;
    }
    std::uint64_t seek_hole(std::uint64_t offset) const
    {
        std::uint64_t found = 0;
        check(folioswap_shmem_seek_hole(get(), offset, &found));
        return found;
    }
    /* The bytes that left memory. */
    std::uint64_t page_out() const
    {
        std::uint64_t left = 0;
        check(folioswap_shmem_page_out(get(), &left));
        return left;
    }
};

/* A limit for the contents of objects, and the devices behind it. Threads may share it. */
class ShmemSpace : public Handle<FolioswapShmemSpace, folioswap_shmem_space_free> {
public:
    ShmemSpace() noexcept = default;
    explicit ShmemSpace(FolioswapShmemSpace *space) noexcept : Handle(space) {}
    /* Contents of at most `size` bytes (0: any number) within `limit` bytes of memory. */
    explicit ShmemSpace(std::uint64_t limit, std::uint64_t size = 0,
                        const std::vector<std::string> &devices = std::vector<std::string>(), const Swap *within = nullptr)
        : Handle(make(limit, size, devices, within))
    {
    }

    ShmemObject object(Huge huge = Huge::Never) const
    {
        FolioswapShmemObject *made = nullptr;
        check(folioswap_shmem_object_new(get(), static_cast<int>(huge), &made));
        return ShmemObject(made);
    }
    std::uint64_t figure(const std::string &name) const
    {
        std::uint64_t value = 0;
        check(folioswap_shmem_space_figure(get(), name.c_str(), &value));
        return value;
    }

private:
    static FolioswapShmemSpace *make(std::uint64_t limit, std::uint64_t size, const std::vector<std::string> &devices,
                                     const Swap *within)
    {
        std::vector<const char *> texts;
        for (const std::string &device : devices)
            texts.push_back(device.c_str());
        FolioswapShmemSpace *made = nullptr;
        check(folioswap_shmem_space_new(limit, size, texts.data(), texts.size(), within ? within->get() : nullptr, &made));
        return made;
    }
};

} // namespace folioswap

#endif /* FOLIOSWAP_HPP */
