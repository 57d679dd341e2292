"""Named sets: stored once, from files, generators or verified downloads, and the `data` command."""

import functools
import hashlib
import http.server
import json
import threading
import zipfile

import pytest
from sealed import data_file

from asyncqn.cli.output import Output
from asyncqn.errors import BadInput, DamagedFile
from asyncqn_recommender.commands.data import store_set
from asyncqn_recommender.data import (
    as_ratings,
    fetch,
    load,
    synthetic_ratings,
)
from asyncqn_recommender.data import cache as sets


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ASYNCQN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sets, "URL", "http://127.0.0.1:9/{}.zip")
    return tmp_path / "cache"


@pytest.fixture
def archive(tmp_path):
    file = tmp_path / "small.zip"
    with zipfile.ZipFile(file, "w") as out:
        out.writestr("ml-1m/ratings.dat", "1::10::3::9\n2::10::4::9\n")
        out.writestr(
            "ml-1m/movies.dat", "10::Ten (1910)::Drama\n11::Eleven (1911)::Drama\n"
        )
    return file


@pytest.fixture
def server(archive, monkeypatch):
    """An archive site on the loopback interface; yields the paths asked for."""
    content, asked = archive.read_bytes(), []

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *words):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Site) as site:
        thread = threading.Thread(
            target=functools.partial(site.serve_forever, poll_interval=0.01)
        )
        thread.start()
        monkeypatch.setattr(
            sets, "URL", f"http://127.0.0.1:{site.server_port}/{{}}.zip"
        )
        monkeypatch.setitem(sets.MD5, "ml-1m", hashlib.md5(content).hexdigest())
        yield asked
        site.shutdown()
        thread.join()


def test_a_download_is_verified_stored_and_not_repeated(server, cache):
    path = fetch("ml-1m")
    assert (len(load("ml-1m")), fetch("ml-1m"), len(server)) == (2, path, 1)


@pytest.mark.parametrize("name", ["ml-1m", "synthetic-demo"])
def test_a_cache_that_is_a_file_is_told_in_a_sentence(cache, name):
    cache.write_text("in the way")
    with pytest.raises(BadInput) as caught:
        fetch(name)
    assert "\n" not in str(caught.value)
    assert cache.read_text() == "in the way"


def test_a_download_with_another_checksum_is_refused(server, cache, monkeypatch):
    monkeypatch.setitem(sets.MD5, "ml-1m", "0" * 32)
    with pytest.raises(DamagedFile, match="published checksum"):
        fetch("ml-1m")
    with pytest.raises(BadInput, match="no stored set of that name"):
        load("ml-1m")


def test_an_archive_on_disk_is_imported_with_titles(archive, capsys):
    summary = store_set("ml-1m", archive, Output())
    assert json.loads(json.dumps(summary)) == summary
    assert (
        summary["ratings"],
        summary["users"],
        summary["items"],
        summary["skipped"],
    ) == (2, 2, 2, 0)
    assert summary["origin"]["official"] is False
    assert "differs from the official archive" in capsys.readouterr().err
    assert load("ml-1m").titles.tolist() == ["Ten (1910)", "Eleven (1911)"]


def test_own_files_get_own_names_and_a_new_file_replaces_the_old(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("user,item,rating\na,x,1\n")
    first = store_set("mine", file, Output())
    assert store_set("mine", file, Output()) == first
    file.write_text("user,item,rating\na,x,1\nb,x,bad\n")
    with pytest.raises(BadInput, match="row 3"):
        store_set("mine", file, Output())
    assert store_set("mine", None, Output())["digest"] == first["digest"]
    assert store_set("mine", file, Output(), skip_bad=True)["skipped"] == 1
    with pytest.raises(BadInput, match="row 3"):
        store_set("mine", file, Output())


def test_presets_are_generated_once_and_mended_when_damaged():
    expected = synthetic_ratings(300, 200, 12_000)
    assert load("synthetic-demo").digest == expected.digest
    path = fetch("synthetic-demo")
    file = data_file(path, "values.npy")
    stamp = file.stat().st_mtime_ns
    assert fetch("synthetic-demo") == path
    assert file.stat().st_mtime_ns == stamp
    file.write_bytes(b"")
    assert as_ratings("synthetic-demo").digest == expected.digest


@pytest.mark.parametrize("name", ["../evil", "", "a/b", ".hidden", "x" * 100])
def test_names_cannot_leave_the_cache(name):
    with pytest.raises(BadInput, match="not a name for a set"):
        fetch(name)


def test_unknown_names_are_answered_with_the_known_ones(tmp_path):
    with pytest.raises(BadInput, match=r"ml-1m.*synthetic-20m"):
        fetch("nonsense")
    with pytest.raises(BadInput, match="no stored set of that name"):
        load("nonsense")
    with pytest.raises(BadInput, match="is generated"):
        fetch("synthetic-1m", tmp_path)
    with pytest.raises(BadInput, match="no file"):
        fetch("mine", tmp_path / "absent.zip")
