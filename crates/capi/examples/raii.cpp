/* The C++ header: a region larger than its limit, a group, a pin, a shmem object, and a refusal as an exception.
 *
 *   c++ -std=c++11 raii.cpp $(pkg-config --cflags --libs folioswap) -o raii && ./raii
 */
#include <folioswap.hpp>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace {

const std::size_t MIB = std::size_t(1) << 20;

void must(bool is_so, const char *what)
{
    if (!is_so) {
        std::fprintf(stderr, "not so: %s\n", what);
        std::exit(1);
    }
}

std::uint64_t number_at(std::size_t at) { return at * 0x9e3779b97f4a7c15u; }

} // namespace

int main()
{
    try {
        folioswap::Region region;
        {
            folioswap::Swap swap(32 * MIB, {"zram,prio=1", "file:/var/tmp,size=256M,prio=0"});
            must(swap.limit() == 32 * MIB, "the limit");
            folioswap::Swap group = swap.group(16 * MIB);
            region = group.region(64 * MIB);
            std::uint64_t *numbers = region.as<std::uint64_t>();
            for (std::size_t at = 0; at < region.size() / 8; at++)
                numbers[at] = number_at(at);
            must(group.figure("pswpout") > 0, "pages were swapped out");
            must(!group.describe().empty(), "a description");
        }
        /* The swap is freed, and the region lives on. */
        folioswap::Region moved = std::move(region);
        must(!region && moved, "a value that was moved from is empty");
        const std::uint64_t *numbers = moved.as<std::uint64_t>();
        for (std::size_t at = 0; at < moved.size() / 8; at++)
            must(numbers[at] == number_at(at), "the numbers are those that were written");
        folioswap::Pin pin = moved.pin(0, MIB);
        must(moved.resident(0, MIB) == MIB, "pinned memory is resident");
        pin = folioswap::Pin();

        folioswap::ShmemSpace space(8 * MIB);
        folioswap::ShmemObject object = space.object();
        char text[6] = "hello";
        must(object.write(3 * MIB, text, sizeof text) == sizeof text && object.size() == 3 * MIB + sizeof text, "written");
        text[0] = 'x';
        must(object.read(3 * MIB, text, sizeof text) == sizeof text && text[0] == 'h', "read");
        must(object.seek_data(0) == 3 * MIB, "a hole before");

        try {
            folioswap::Swap none(1000);
            must(false, "a limit of 1000 bytes is refused");
        } catch (const folioswap::Error &error) {
            must(error.code() == FOLIOSWAP_ELIMIT && error.what()[0] != '\0', "the code and the line of a refusal");
        }
    } catch (const folioswap::Error &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    std::puts("values");
    return 0;
}
