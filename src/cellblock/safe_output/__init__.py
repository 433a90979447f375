"""Take active content out of what code shows: bundles, HTML, style sheets, Markdown, TeX, charts.

Every type that leaves the session is one of three: text that clients show as it is, pictures that
are nothing but base64, or a language, of which the modules here keep a subset that is known to be
inert. Everything else is left out. Inert means: no script runs, nothing is loaded, and nothing
outside the output changes, unless the user follows a link.
"""
