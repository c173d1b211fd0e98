"""Hooks of MkDocs. The menu of the site is what docs/README.md lists. Pages are written for the
forge: titles get the anchors that it gives them, and a link that leaves docs/ leads to the file
there."""

import os
import pathlib
import re

LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


def anchor(title, _separator):
    """The anchor that the forge gives a title."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def on_config(config):
    config.mdx_configs["toc"]["slugify"] = anchor
    index = pathlib.Path(config.docs_dir, "README.md").read_text()
    config.nav = [{"Documents": "README.md"}]
    listed = {"README.md"}
    for section in re.split(r"^## ", index, flags=re.M)[1:]:
        title, _, text = section.partition("\n")
        pages = []
        for name, page in re.findall(r"\[([^]]+)\]\(([^)#]+\.md)\)", text):
            if not page.startswith("..") and page not in listed:
                listed.add(page)
                pages.append({name[0].upper() + name[1:]: page})
        config.nav.append({title: pages})
    return config


def on_page_markdown(markdown, page, config, files):
    folder = pathlib.PurePosixPath("docs", page.file.src_uri).parent

    def link(found):
        target, part = found.group(1), found.group(2) or ""
        path = os.path.normpath(folder / target)
        if "://" in target or target.startswith("mailto:") or path.startswith("docs/") and not path.endswith(".go"):
            return found.group(0)
        root = pathlib.Path(config.docs_dir).parent
        if not (root / path).exists():
            raise ValueError(f"{page.file.src_uri}: {target} does not exist")
        kind = "tree" if (root / path).is_dir() else "blob"
        return f"]({config.repo_url}/{kind}/main/{path}{part})"

    return LINK.sub(link, markdown)
