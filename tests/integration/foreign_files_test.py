"""Data files that nobody prepared for us: shipped by other packages, or written by h5py, pandas and
json with options that our own tests do not use. Each is read right, or refused by name."""

import gzip
import json
import os
import struct
import unittest

import h5py
import numpy as np
import pandas

from leeway_case import LeewayCase

FASHION = "/usr/share/datasets/fashion-mnist"
VEGA = "/usr/lib/python3/dist-packages/vega_datasets/_data"
MATPLOTLIB = "/usr/share/matplotlib/mpl-data/sample_data"


class ForeignFilesTest(LeewayCase):
    def setUp(self):
        super().setUp()
        self.count = 0

    def bring(self, kind, *arguments, check=True):
        """One import; returns (exit code, output), and self.out is what it wrote."""
        self.count += 1
        self.out = self.path(f"out{self.count}")
        return self.run_program("leeway", "data", "import", kind, *arguments, "--out", self.out,
                                check=check)

    def refused(self, words, kind, *arguments):
        code, text = self.bring(kind, *arguments, check=False)
        self.assertEqual(code, 2, text)
        for word in words:
            self.assertIn(word, text)
        self.assertTrue(text.isprintable() or text.rstrip("\n").isprintable(), repr(text))
        # Nothing half-written, under this name or a temporary one.
        self.assertEqual([n for n in os.listdir(self.folder) if n.startswith((".", "out"))],
                         self.kept)

    @property
    def kept(self):
        return [n for n in os.listdir(self.folder)
                if n.startswith("out") and os.path.exists(self.path(n, "federation.json"))]

    def array(self, client, name):
        return np.load(os.path.join(self.out, client, name + ".npy"))

    def summary(self):
        with open(os.path.join(self.out, "federation.json")) as f:
            return json.load(f)

    # ---- CSV

    def test_csv_of_other_packages(self):
        path = f"{VEGA}/seattle-weather.csv"
        self.bring("csv", path, "--label", "weather", "--drop-columns", "date")
        theirs = pandas.read_csv(path)
        np.testing.assert_array_equal(
            self.array("seattle-weather", "train_x"),
            theirs[["precipitation", "temp_max", "temp_min", "wind"]].to_numpy(np.float32))
        np.testing.assert_array_equal(
            self.array("seattle-weather", "train_y"),
            theirs["weather"].astype("category").cat.codes)

        path = f"{VEGA}/airports.csv"  # quoted cells with commas
        self.bring("csv", path, "--client-column", "state", "--label", "country", "--drop-columns",
                   "iata,name,city", "--min-samples", 5)
        theirs = pandas.read_csv(path, keep_default_na=False).groupby("state")
        clients = {n for n in os.listdir(self.out) if os.path.isdir(os.path.join(self.out, n))}
        self.assertEqual(clients, {state for state, rows in theirs if len(rows) >= 5})
        np.testing.assert_array_equal(
            self.array("TX", "train_x"),
            theirs.get_group("TX")[["latitude", "longitude"]].to_numpy(np.float32))

        path = f"{MATPLOTLIB}/msft.csv"
        self.bring("csv", path, "--label", "Close", "--drop-columns", "Date")
        theirs = pandas.read_csv(path)
        np.testing.assert_array_equal(self.array("msft", "train_y"),
                                      theirs["Close"].to_numpy(np.float32))
        # A comment above the header is no header.
        self.refused(["Stocks.csv", "no column MSFT"], "csv", f"{MATPLOTLIB}/Stocks.csv", "--label",
                     "MSFT")
        self.refused(["iowa-electricity.csv", "no column is left"], "csv",
                     f"{VEGA}/iowa-electricity.csv", "--client-column", "source", "--label",
                     "net_generation", "--drop-columns", "year")

    def test_csv_written_by_pandas(self):
        frame = pandas.DataFrame({
            "who": ["a, b", 'c"d', "é", "a, b"], "x": [1234567.5, -2e-3, np.nan, 4],
            "kind": ["u\nv", "w", "w", "u\nv"], "y": [True, False, True, True]})
        for name, options in {
            "plain": {}, "crlf": {"lineterminator": "\r\n"}, "mark": {"encoding": "utf-8-sig"},
            "quoted": {"quoting": 1}, "tabs": {"sep": "\t"}, "gz": {"compression": "gzip"},
            "latin": {"encoding": "latin-1"}, "exponents": {"float_format": "%.9e"},
        }.items():
            with self.subTest(name):
                path = self.path(name + ".csv")
                frame.to_csv(path, index=False, **options)
                self.bring("csv", path, "--client-column", "who", "--label", "y", "--one-hot",
                           "kind", "--delimiter", options.get("sep", ","))
                np.testing.assert_array_equal(self.array("a, b", "train_x"),
                                              np.float32([[1234567.5, 0], [4, 0]]))
                np.testing.assert_array_equal(self.array('c"d', "train_x"),
                                              np.float32([[-2e-3, 1]]))
                np.testing.assert_array_equal(self.array("a, b", "train_y"), [1, 1])
                self.assertEqual(self.summary()["skipped"]["rows_with_missing_values"], 1)

    def test_csv_that_would_be_misread(self):
        frame = pandas.DataFrame({"who": ["a", "b"], "x": [1.5, 2], "y": [0, 1]})
        choice = ["--client-column", "who", "--label", "y"]
        for name, options, words in [
            ("utf16", {"encoding": "utf-16"}, ["is UTF-16", "iconv"]),
            ("mac", {"lineterminator": "\r"}, ["carriage return"]),
            ("comma", {"decimal": ",", "sep": ";"}, ['column x is "1,5", not a number']),
        ]:
            path = self.path(name + ".csv")
            frame.to_csv(path, index=False, **options)
            self.refused([name + ".csv", *words], "csv", path, *choice, "--delimiter",
                         options.get("sep", ","))
        for name, text, words in [
            ("thousands", 'who,x,y\na,"1,234.5",0\n', [':2: client a: column x is "1,234.5"']),
            ("nul", "who,x,y\na,1\0,0\n", [':2: client a: column x is "1%00"']),
            ("twice", "who,x,x,y,y\na,1,2,0,0\n", ["several columns y", "number"]),
            ("header", "who,x,y\n", ["header.csv", "no client has a training sample"]),
        ]:
            path = self.path(name + ".csv")
            self.write(name + ".csv", text)
            self.refused([name + ".csv", *words], "csv", path, *choice)

    def test_csv_whose_client_is_derived_from_a_code(self):
        self.write("houses.csv", "code,x,price\n97201,1,0\n97301,2,1\n10001,3,0\n99501,4,1\n")
        source = [self.path("houses.csv"), "--label", "price", "--client-from", "code"]
        self.bring("csv", *source, "--client-prefix", 2)
        self.assertEqual(sorted(os.listdir(self.out)), ["10", "97", "99", "federation.json"])
        np.testing.assert_array_equal(self.array("97", "train_x"), [[1], [2]])
        self.write("regions.csv", "code,region\n97*,oregon\n97301,salem\n10001,new york\n*,other\n")
        self.bring("csv", *source, "--map", self.path("regions.csv"))
        self.assertEqual(sorted(os.listdir(self.out)),
                         ["federation.json", "new york", "oregon", "other", "salem"])
        self.write("some.csv", "97*,oregon\n")
        self.refused(["houses.csv:4", '"10001", which is not in', "some.csv", '"*,NAME"'], "csv",
                     *source, "--map", self.path("some.csv"))
        self.write("twice.csv", "97*,oregon\n97*,washington\n")
        self.refused(["twice.csv:2", "washington here and for oregon"], "csv", *source, "--map",
                     self.path("twice.csv"))
        self.write("wide.csv", "97,a,b\n")
        self.refused(["wide.csv:1", "expected two"], "csv", *source, "--map", self.path("wide.csv"))
        self.refused(["--map FILE", "--client-prefix"], "csv", *source)
        self.refused(["give one of them"], "csv", *source, "--client-prefix", 2, "--client-column",
                     "x")

    def test_csv_with_several_marks_of_missing_values(self):
        self.write("gaps.csv", "x,y\n1,0\nNA,0\n?,1\n-999,1\n,1\n5,1\n")
        for marks in (["--missing", "?,NA,-999"],
                      ["--missing", "?", "--missing", "NA", "--missing", "-999"],
                      ["--missing=?", "--missing=NA,-999"]):
            self.bring("csv", self.path("gaps.csv"), "--label", "y", *marks)
            np.testing.assert_array_equal(self.array("gaps", "train_x"), [[1], [5]])
            self.assertEqual(self.summary()["skipped"]["rows_with_missing_values"], 4)

    def test_csv_labels_are_shown_by_name_and_numbers_are_not_taken_for_classes(self):
        self.write("words.csv", "x,y\n1,yes\n2,no\n3,yes\n")
        _, text = self.bring("csv", self.path("words.csv"), "--label", "y")
        self.assertRegex(text, r"0: 1 +no\n +1: 2 +yes\n")
        self.write("above.csv", "x,num\n1,0\n2,3\n")
        _, text = self.bring("csv", self.path("above.csv"), "--label", "num",
                             "--label-positive-above", 0)
        self.assertRegex(text, r"0: 1 +num <= 0\n +1: 1 +num > 0\n")
        rows = "".join(f"{i % 3},{50000 + 17 * i}\n" for i in range(300))
        self.write("prices.csv", "x,price\n" + rows)
        _, text = self.bring("csv", self.path("prices.csv"), "--label", "price")
        self.assertIn("55,084 classes for 300 training samples: did you mean --regression", text)
        _, text = self.bring("csv", self.path("prices.csv"), "--label", "price", "--regression")
        self.assertNotIn("did you mean", text)

    # ---- TFF HDF5

    def hdf5(self, name, clients, libver=None, **options):
        """clients: {name: {feature: data}}."""
        with h5py.File(self.path(name), "w", libver=libver) as f:
            for client, features in clients.items():
                group = f.create_group("examples/" + client)
                for feature, data in features.items():
                    group.create_dataset(feature, data=data, **options)
        return self.path(name)

    def test_images_written_by_h5py(self):
        rng = np.random.default_rng(1)
        whole = rng.integers(0, 256, (5, 28, 28))
        y = rng.integers(0, 10, 5)
        for name, x_type, y_type, options in [
            ("chunks", "<f4", "<i4", {"chunks": (2, 28, 28)}),
            ("gzip", "<f4", "<i4", {"compression": "gzip", "compression_opts": 9}),
            ("shuffled", "<f4", "<i4", {"compression": "gzip", "shuffle": True,
                                        "fletcher32": True}),
            ("big_endian", ">f4", ">i8", {}), ("float64", "<f8", "u1", {}),
            ("bytes", "u1", "<i2", {}), ("big_endian_integers", ">i4", ">u2", {}),
            ("newest_format", "<f4", "<i4", {"libver": "latest"}),
        ]:
            with self.subTest(name):
                scale = 1 if np.dtype(x_type).kind in "iu" else 255
                x = (whole / scale).astype(x_type)
                if "chunks" in options:  # chunks must have the rank of the data
                    path = self.hdf5(name, {"f0_1 é": {"pixels": x}}, **options)
                    with h5py.File(path, "a") as f:
                        f.create_dataset("examples/f0_1 é/label", data=y.astype(y_type),
                                         chunks=(2,))
                else:
                    path = self.hdf5(name, {"f0_1 é": {"pixels": x, "label": y.astype(y_type)}},
                                     **options)
                self.bring("tff", path)
                np.testing.assert_allclose(self.array("f0_1 é", "train_x"), whole / 255, rtol=1e-6)
                np.testing.assert_array_equal(self.array("f0_1 é", "train_y"), y)

    def test_strings_written_by_h5py(self):
        texts = ["To be, or not", "to bé", "", "x y"]
        found = []
        for name, options in {
            "variable": {"dtype": h5py.string_dtype("utf-8")},
            "variable_gzip": {"dtype": h5py.string_dtype("utf-8"), "compression": "gzip",
                              "chunks": (2,)},
            "fixed": {"dtype": h5py.string_dtype("utf-8", 20)},
        }.items():
            data = [t.encode() for t in texts] if name == "fixed" else texts
            self.bring("tff", self.hdf5(name, {"a": {"snippets": data}}, **options), "--sequence",
                       20)
            found.append(self.array("a", "train_x"))
        self.assertEqual(len(found[0]), 3)  # one text is empty
        for other in found[1:]:
            np.testing.assert_array_equal(found[0], other)

    def test_hdf5_that_is_refused(self):
        x, y = np.zeros((2, 4, 4), np.float32), [0, 1]
        good = {"pixels": x, "label": y}
        for name, clients, words in [
            ("mixed", {"a": good, "b": {"pixels": np.zeros((2, 3, 4), np.float32), "label": y}},
             ["client b: x has rows of float32 [3,4]", "client a are float32 [4,4]"]),
            ("absent", {"a": good, "b": {"label": y}}, ["client b: pixels: is not there"]),
            ("real", {"a": {"pixels": x, "label": [0.0, 1.0]}}, ["client a: label: expected int"]),
            ("one", {"a": {"pixels": x, "label": 1}}, ["client a: label: is not an array"]),
            ("nan", {"a": {"pixels": np.full((2, 2), np.nan, np.float32), "label": y}},
             ["client a: x of sample 0"]),
            ("few", {"a": {"pixels": x, "label": [1]}}, ["client a"]),
            ("many", {"a": {"pixels": x, "label": np.zeros((2, 2), int)}},
             ["client a: label has more than one value per sample"]),
        ]:
            self.refused([name, *words], "tff", self.hdf5(name, clients))
        for name, write, words in [
            ("no_group", lambda f: f.create_dataset("data", data=[1]), ["no group /examples"]),
            ("no_clients", lambda f: f.create_group("examples"), ["holds no client"]),
            ("flat", lambda f: f.create_dataset("examples/a", data=[1]),
             ["client a: cannot be opened as a group"]),
            ("ragged", lambda f: f.create_dataset("examples/a/pixels", (2,),
                                                  dtype=h5py.vlen_dtype("f4")),
             ["client a: pixels: holds neither numbers nor strings"]),
            ("dangling", lambda f: f.update({"examples/a": h5py.SoftLink("/nowhere")}),
             ["client a: cannot be opened"]),
        ]:
            with h5py.File(self.path(name), "w") as f:
                write(f)
            self.refused([name, *words], "tff", self.path(name))
        # h5py brings a compression of its own.
        self.refused(["lzf", "client a: pixels: is compressed with the HDF5 filter 32000"], "tff",
                     self.hdf5("lzf", {"a": good}, compression="lzf"))

    def test_hdf5_that_would_read_other_files(self):
        """Whoever makes such a file would choose which files of this machine end up in the data."""
        secret = self.write("secret", "0123456789abcdef" * 2)
        y = [0, 1]

        def external(f):
            f.create_dataset("examples/a/pixels", (2, 4), "f4", external=[(secret, 0, 32)])

        def virtual(f):
            layout = h5py.VirtualLayout((2, 4), "f4")
            layout[:] = h5py.VirtualSource(other, "examples/a/pixels", (2, 4))
            f.create_virtual_dataset("examples/a/pixels", layout)

        def linked(f):
            f["examples/a/pixels"] = h5py.ExternalLink(other, "/examples/a/pixels")

        def client(f):
            f["examples/a"] = h5py.ExternalLink(other, "/examples/a")

        def examples(f):
            f["examples"] = h5py.ExternalLink(other, "/examples")

        def detour(f):
            f["elsewhere"] = h5py.ExternalLink(other, "/examples/a/pixels")
            f["examples/a/pixels"] = h5py.SoftLink("/elsewhere")

        other = self.hdf5("other", {"a": {"pixels": np.ones((2, 4), np.float32), "label": y}})
        self.bring("tff", other)
        for write, word in [(external, "stored outside of the file"), (virtual, "virtual data set"),
                            (linked, "link to another file"), (client, "link to another file"),
                            (examples, "link to another file"), (detour, "client a: pixels")]:
            with h5py.File(self.path(write.__name__), "w") as f:
                write(f)
                if write not in (client, examples):
                    f["examples/a/label"] = y
            self.refused([write.__name__, word], "tff", self.path(write.__name__))

    def test_names_that_hide_something(self):
        names = {"right\u202eto left": "right%E2%80%AEto left", "zero\u200bwidth": "zero%E2%80%8Bwidth",
                 "\u0085line": "%C2%85line", "\x1b[31mred": "%1B[31mred", "caf\u00e9": "caf\u00e9"}
        rows = "".join(f"{name},1,0\n" for name in names)
        with open(self.path("names.csv"), "w", encoding="utf-8") as f:
            f.write("who,x,y\n" + rows)
        _, text = self.bring("csv", self.path("names.csv"), "--client-column", "who", "--label", "y")
        self.assertEqual(sorted(n for n in os.listdir(self.out) if n != "federation.json"),
                         sorted(names.values()))
        with open(self.path("words.csv"), "w", encoding="utf-8") as f:
            f.write("x,y\n1,\u202eno\n2,\x1b[31myes\n")
        _, text = self.bring("csv", self.path("words.csv"), "--label", "y")
        for line in text.splitlines():
            self.assertTrue(line.isprintable(), repr(line))
        self.assertIn("%1B[31myes", text)

    def test_files_that_are_none(self):
        """A FIFO where a file should be must not make anybody wait."""
        os.mkfifo(self.path("fifo"))
        for kind, *arguments in [("csv", "--label", "y"), ("idx", "--labels", self.path("fifo")),
                                 ("tff",), ("text",)]:
            self.refused(["fifo: is not a regular file"], kind, self.path("fifo"), *arguments)
        os.makedirs(self.path("data", "a"))
        np.save(self.path("data", "a", "train_y.npy"), np.zeros(3))
        os.mkfifo(self.path("data", "a", "train_x.npy"))
        for words in (["data", "describe", self.path("data")],
                      ["init", "--data", self.path("data"), "--out", self.path("c")]):
            code, text = self.run_program("leeway", *words, check=False)
            self.assertEqual(code, 2, text)
            self.assertIn("not a regular file", text)

    # ---- LEAF JSON

    LEAF = {"users": ["é\n1", "b"], "num_samples": [2, 1], "hierarchies": ["h", "g"],
            "user_data": {"b": {"x": [[1, 2]], "y": [0], "more": {}},
                          "é\n1": {"x": [[1, 2e0], [3, -4.5e-3]], "y": [1.0, 0]}},
            "extra": {"deep": [None, True, "text"]}}

    def leaf(self, name, value, **options):
        os.makedirs(self.path(name))
        with open(self.path(name, "all.json"), "wb") as f:
            f.write(value if isinstance(value, bytes) else json.dumps(value, **options).encode())
        return self.path(name)

    def test_leaf_written_by_python(self):
        for name, value, options in [
            ("indented", self.LEAF, {"indent": 2}), ("sorted", self.LEAF, {"sort_keys": True}),
            ("unescaped", self.LEAF, {"ensure_ascii": False}),
            ("mark", b"\xef\xbb\xbf" + json.dumps(self.LEAF).encode(), {}),
        ]:
            with self.subTest(name):
                self.bring("leaf", self.leaf(name, value, **options))
                np.testing.assert_array_equal(self.array("é%0A1", "train_x"),
                                              np.float32([[1, 2], [3, -4.5e-3]]))
                np.testing.assert_array_equal(self.array("é%0A1", "train_y"), [1, 0])

    def test_leaf_that_is_refused(self):
        def changed(**b):
            return dict(self.LEAF, user_data=dict(self.LEAF["user_data"], b=b))

        text = json.dumps(self.LEAF)
        for name, value, words in [
            ("nan", changed(x=[[1, float("nan")]], y=[0]), ["client b: x of sample 0", "NaN"]),
            ("null", changed(x=[[1, None]], y=[0]), ["client b: x of sample 0", "kind of value"]),
            ("text", changed(x=["to be"], y=["!"]), ["client b: x of sample 0: is text"]),
            ("words", changed(x=[[1, 2]], y=["1"]), ["client b: y of sample 0 is not a number"]),
            ("ragged", changed(x=[[1, 2], [1]], y=[0, 0]), ["client b: x of sample 1 has 1 values"]),
            ("none", changed(x=[], y=[]), ["client b: num_samples says 1, but user_data has 0"]),
            ("list", b"[1, 2]", ["kind of value", "users"]),
            ("utf16", text.encode("utf-16"), ["bad JSON"]),
            ("latin", json.dumps(self.LEAF, ensure_ascii=False).encode("latin-1"),
             ["not valid UTF-8"]),
            ("cut", text[:-9].encode(), ["bad JSON", "complete?"]),
            ("twice", text.replace('"é\\n1": {', '"b": {').replace('"\\u00e9\\n1": {', '"b": {')
             .encode(), ["client"]),
        ]:
            self.refused([name + "/all.json", *words], "leaf", self.leaf(name, value))
        self.refused(["_data/", "kind of value"], "leaf", VEGA)  # JSON, but not LEAF's

    # ---- IDX

    def idx(self, name, array, code):
        with (gzip.open if name.endswith(".gz") else open)(self.path(name), "wb") as f:
            f.write(struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape))
            f.write(array.astype(array.dtype.newbyteorder(">")).tobytes())
        return self.path(name)

    def test_idx(self):
        self.bring("idx", f"{FASHION}/t10k-images-idx3-ubyte.gz", "--labels",
                   f"{FASHION}/t10k-labels-idx1-ubyte.gz")
        with gzip.open(f"{FASHION}/t10k-images-idx3-ubyte.gz") as f:
            theirs = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 28, 28)
        np.testing.assert_allclose(self.array("all", "train_x"), theirs / 255, rtol=1e-6)
        labels = self.idx("labels", np.uint8([0, 1, 2]), 8)
        self.bring("idx", self.idx("colour.gz", np.full((3, 2, 2, 3), 51, np.uint8), 8), "--labels",
                   labels)
        np.testing.assert_allclose(self.array("all", "train_x"), np.full((3, 2, 2, 3), 0.2),
                                   rtol=1e-6)
        for name, array, code in [("reals", np.ones((3, 2, 2), np.float32), 0x0D),
                                  ("shorts", np.ones((3, 2, 2), np.int16), 0x0B)]:
            self.refused([name, f"type {code}", "expected unsigned bytes"], "idx",
                         self.idx(name, array, code), "--labels", labels)
        self.refused(["labels: has type 8 in 1 dimensions"], "idx", labels, "--labels", labels)
        self.refused(["is not an IDX file"], "idx", f"{MATPLOTLIB}/msft.csv", "--labels", labels)

    def test_idx_with_writers(self):
        """QMNIST's label files: class, series, writer, ... as big-endian int32."""
        pixels = np.arange(6 * 4, dtype=np.uint8).reshape(6, 2, 2)
        labels = np.zeros((6, 8), np.int32)
        labels[:, 0] = [3, 1, 4, 1, 5, 9]
        labels[:, 2] = [2053, 700, 2053, 700, 700, 70000]
        images = self.idx("images", pixels, 8)
        numbers = self.idx("numbers.gz", labels, 0x0C)
        test = labels[:2].copy()
        test[:, 2] = [1, 2]  # by other writers
        tests = ["--test-images", self.idx("test", pixels[:2], 8), "--test-labels",
                 self.idx("test_numbers", test, 0x0C)]
        _, text = self.bring("idx", images, "--labels", numbers, "--client-column", 2, *tests)
        self.assertEqual(sorted(os.listdir(self.out)), ["2053", "700", "70000", "federation.json"])
        np.testing.assert_allclose(self.array("700", "train_x"), pixels[[1, 3, 4]] / 255, rtol=1e-6)
        np.testing.assert_array_equal(self.array("700", "train_y"), [1, 1, 5])
        self.assertIn("2 clients with test data only", text)
        self.bring("idx", images, "--labels", numbers, "--client-column", 2, *tests,
                   "--central-test")
        np.testing.assert_array_equal(self.array("evaluator", "test_y"), [3, 1])
        _, text = self.bring("idx", images, "--labels", numbers)
        np.testing.assert_array_equal(self.array("all", "train_y"), labels[:, 0])
        self.assertIn("--client-column", text)
        self.refused(["--client-column is 8", "from 0 to 7"], "idx", images, "--labels", numbers,
                     "--client-column", 8)
        self.refused(["--client-column is 2", "has 1 column"], "idx", images, "--labels",
                     self.idx("plain", np.uint8([0] * 6), 8), "--client-column", 2)

    def test_idx_that_announces_more_than_it_holds(self):
        for shape in [(4_000_000_000, 65536, 1024), (4_000_000_000, 1, 1)]:
            with open(self.path("large"), "wb") as f:  # 20 bytes
                f.write(struct.pack(">BBBB3I", 0, 0, 8, 3, *shape) + b"\0\0\0\0")
            with open(self.path("labels"), "wb") as f:
                f.write(struct.pack(">BBBBI", 0, 0, 8, 1, shape[0]) + b"\0\0\0\0")
            self.refused(["large: ends before the 4000000000 items"], "idx", self.path("large"),
                         "--labels", self.path("labels"))

    # ---- text by user

    def test_text(self):
        frame = pandas.DataFrame({
            "user_id": ["a", "b"] * 10, "creation_date": [f"2020-01-{d:02}" for d in range(1, 21)],
            "type": "question", "source_id": range(20), "tokens": ["where is é ?"] * 20})
        path = self.path("text.tsv")
        frame.to_csv(path, sep="\t", index=False, lineterminator="\r\n")
        self.bring("text", path, "--min-sentences", 2, "--sequence", 6)
        self.assertEqual(self.array("a", "train_x").shape, (9, 6))
        with open(os.path.join(self.out, "vocabulary.txt")) as f:
            self.assertIn("é", f.read().split())
        frame[["user_id", "tokens"]].to_csv(path, sep="\t", index=False)
        self.refused(["text.tsv:1: has 2 tab-separated columns, expected 5"], "text", path)


if __name__ == "__main__":
    unittest.main()
