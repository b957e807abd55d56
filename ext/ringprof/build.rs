//! Tells the Ruby version at hand to `cfg`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ruby = rb_sys_env::activate()?;
    let (major, minor) = ruby.ruby_major_minor();
    println!("cargo:rustc-env=RINGPROF_RUBY_MAJOR={major}");
    println!("cargo:rustc-env=RINGPROF_RUBY_MINOR={minor}");
    Ok(())
}
