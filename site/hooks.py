"""Makes docs/ fit for a site. Its pages are written for GitHub, where links may leave the folder and anchors are GitHub's. The map in
docs/README.md gives the navigation, and llms.txt, a list of the pages for programs that read them (llmstxt.org)."""

import os
import re

# SITE_COMMIT is the commit to which links to files outside of docs/ lead: the tag of a version, so that the files fit its pages.
SOURCE = f"https://github.com/troupe-go/troupe/blob/{os.environ.get('SITE_COMMIT', 'main')}/"
LINK = re.compile(r"\]\((?!https?://|#)([^)\s#]+)(#[^)\s]*)?\)")
PAGE = re.compile(r"\[([^\]]+)\]\(([\w./-]+\.md)\)")


def on_config(config):
    # GitHub keeps each letter, digit, dash and underscore of a heading, in lower case, and makes a space a dash.
    config["mdx_configs"].setdefault("toc", {})["slugify"] = lambda text, separator: re.sub(
        r"[^\w\- ]", "", text.lower()).replace(" ", separator)
    config["nav"] = [{"The map": "README.md"}] + [
        {title: [{capital(name): path} for name, path, _ in pages]} for title, pages in sections(config["docs_dir"])]
    return config


def capital(text):
    if re.match(r"`|troupe|outbox-relay", text):
        return text.replace("`", "")
    return text[:1].upper() + text[1:]


def sections(docs):
    """Yields the title and the pages of each section of the map; a page has a name, a path and a description, and is in one section.
    Every other page of a folder follows the folder's README."""
    with open(os.path.join(docs, "README.md"), encoding="utf-8") as file:
        text = file.read()
    seen = set()
    for part in re.split(r"^## (?:\d+\. )?", text, flags=re.M)[1:]:
        title, body = part.split("\n", 1)
        pages = []
        for item in re.split(r"^(?=- |\S)", body, flags=re.M):
            item = " ".join(item.split())
            for name, path in PAGE.findall(item):
                if path.startswith("..") or path in seen:
                    continue
                seen.add(path)
                pages.append((name, path, item.partition(": ")[2]))
                folder = os.path.dirname(path)
                if path.endswith("/README.md"):
                    for other in sorted(os.listdir(os.path.join(docs, folder))):
                        other = f"{folder}/{other}"
                        if other.endswith(".md") and other not in seen:
                            seen.add(other)
                            pages.append((heading(os.path.join(docs, other)), other, ""))
        yield title, pages


def heading(path):
    with open(path, encoding="utf-8") as file:
        return file.readline().lstrip("# ").strip()


def on_page_markdown(markdown, page, config, files):
    """Sends links to files outside of docs/ to the repository. It changes nothing in a code block."""
    folder = os.path.dirname(page.file.src_uri)

    def replaced(match):
        path = os.path.normpath(os.path.join("docs", folder, match[1]))
        if path.startswith("docs/") and not os.path.isdir(os.path.join(config["docs_dir"], path[5:])):
            return match[0]
        return f"]({SOURCE}{path}{match[2] or ''})"

    parts = re.split(r"(^```.*?^```)", markdown, flags=re.M | re.S)
    parts[::2] = [LINK.sub(replaced, part) for part in parts[::2]]
    return "".join(parts)


def on_post_build(config):
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    for title, pages in sections(config["docs_dir"]):
        if pages:
            lines += [f"## {title}", ""] + [
                f"- [{capital(name)}]({SOURCE}docs/{path})" + (f": {PAGE.sub(lambda m: m[1], about)}" if about else "")
                for name, path, about in pages] + [""]
    with open(os.path.join(config["site_dir"], "llms.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
