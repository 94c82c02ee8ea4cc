"""Arrow's data in managed memory."""

import gc

import numpy as np
import pytest

import folioswap

pa = pytest.importorskip("pyarrow", reason="pip has not installed pyarrow")


@pytest.fixture(autouse=True)
def limit():
    with folioswap.limit("16M") as limit:
        yield limit
    gc.collect()


def table(rows):
    numbers = np.arange(rows)
    return pa.table({"number": numbers, "text": pa.array([f"{number % 1000:07}" for number in numbers]), "none": pa.array([None, 1.5] * (rows // 2))})


def test_a_table_that_is_larger_than_the_limit_lies_in_managed_memory(limit):
    plain = table(1_200_000)
    assert plain.nbytes > 24 << 20

    # What a function's asserts hold on to ends with the function.
    def column_of_a_managed_one():
        managed = folioswap.arrow(plain)
        check_places(managed, limit)
        assert managed.equals(plain) and managed.schema.equals(plain.schema)
        return managed["text"]

    def check(text):
        gc.collect()
        assert text.equals(plain["text"]), "a column keeps the memory"
        assert limit.stats()["arrays"] == 1

    check(column_of_a_managed_one())
    gc.collect()
    assert limit.stats()["arrays"] == 0


def check_places(managed, limit):
    listed = folioswap.arrays()
    assert len(listed) == 1 and listed[0].bytes >= managed.nbytes and limit.stats()["pswpout"] > 0
    for column in managed.columns:
        for chunk in column.chunks:
            for each in filter(None, chunk.buffers()):
                assert listed[0].address <= each.address < listed[0].address + listed[0].bytes


def test_batches_chunks_and_nothing():
    plain = table(10_000)
    batch = plain.to_batches()[0]
    managed = folioswap.arrow(batch)
    assert isinstance(managed, pa.RecordBatch) and managed.equals(batch)
    assert folioswap.arrow(pa.concat_tables([plain, plain])).equals(pa.concat_tables([plain, plain]))
    empty = folioswap.arrow(plain.slice(0, 0))
    assert empty.num_rows == 0 and empty.schema.equals(plain.schema)
    assert folioswap.arrow(plain.slice(3, 10)).equals(plain.slice(3, 10))
    for wrong in (1, "table", [1, 2]):
        with pytest.raises(TypeError, match="not data of Arrow"):
            folioswap.arrow(wrong)


def test_pandas_takes_text_without_a_copy():
    pandas = pytest.importorskip("pandas", minversion="3", reason="pip has not installed pandas 3")
    plain = pandas.DataFrame({"text": [f"{number % 1000:07}" for number in range(400_000)]})
    managed = folioswap.arrow(plain).to_pandas()
    piece = folioswap.arrays()[0]
    pa_array = pa.array(managed["text"])
    chunks = pa_array.chunks if isinstance(pa_array, pa.ChunkedArray) else [pa_array]
    for each in filter(None, (each for chunk in chunks for each in chunk.buffers())):
        assert piece.address <= each.address < piece.address + piece.bytes
    assert managed.equals(plain)
    assert managed["text"].str.len().sum() == 7 * 400_000
