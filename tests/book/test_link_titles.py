"""Tooltips of links say what they lead to."""

from __future__ import annotations

from compendium.book import link_titles

TARGET = """\
<section id="norms"><h2>Norms of \\(x\\)<a class="headerlink" href="#norms">#</a></h2></section>
<div class="proof lemma admonition" id="lem-a">
<p class="admonition-title"><span class="caption-number">Lemma 1 </span> (The inverse)</p>
<dt class="sig sig-object py" id="pkg.f"><span>f</span></dt><dd><p>Factor of <em>it</em> &amp; more.</p></dd>
<section id="c1"><h3>C1<a class="headerlink" href="#c1">#</a></h3></section>
<a href="#c1" data-claim="C1" data-status="verified"><title>C1, verified: a &lt; b</title></a>
<section id="long"><h2>{}<a class="headerlink" href="#long">#</a></h2></section>
"""
LINK = '<a class="reference internal" href="{}"{}><span>{}</span></a>'


def test_links_get_the_names_of_their_targets(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.html").write_text(TARGET.format("word " * 100) + LINK.format("#norms", "", "here"))
    links = [
        LINK.format("../a.html#norms", "", "this section"),
        LINK.format("../a.html#lem-a", "", "Lemma 1"),
        LINK.format("../a.html#pkg.f", ' title="pkg.f"', "f"),
        LINK.format("../a.html#c1", "", "C1"),
        LINK.format("../a.html#long", "", "long"),
        LINK.format("../a.html#norms", "", "Norms of x"),
        LINK.format("../a.html#norms", ' title="as written"', "x"),
        LINK.format("../a.html#nothing", "", "x"),
        LINK.format("../b.html#norms", "", "x"),
        '<a class="reference external" href="https://a.org/a.html#norms">x</a>',
    ]
    (tmp_path / "sub" / "b.html").write_text("\n".join(links))
    assert link_titles.add(tmp_path) == 5
    assert ' title="Norms of x"><span>here' in (tmp_path / "a.html").read_text()
    after = (tmp_path / "sub" / "b.html").read_text().split("\n")
    for line, title in enumerate(
        ["Norms of x", "Lemma 1 (The inverse)", "pkg.f: Factor of it &amp; more.", "C1, verified: a &lt; b"]
    ):
        assert f' title="{title}">' in after[line]
    (long,) = [part for part in after[4].split('"') if part.startswith("word")]
    assert long.endswith(" …")
    assert len(long) <= 310
    assert after[5:] == links[5:]
    assert link_titles.add(tmp_path) == 0
